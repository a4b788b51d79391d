"""Questions an author has asked before the agent begins: the scope before the work."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from signoff.domain.elicitation import Question, QuestionSet, question_set
from signoff.domain.jsonvalue import JsonObject


class IntakeWhen(StrEnum):
    """Before which turns: the first of a thread, or each."""

    THREAD_START = "thread-start"
    EVERY_TURN = "every-turn"


@dataclass(frozen=True, slots=True)
class Intake:
    """`questions` (or their JSON) asked before the first model call of the turns that `when` names.

    Raises:
        InvalidInput: the question set is malformed.
        ValueError: `when` is neither ``"thread-start"`` nor ``"every-turn"``.
    """

    questions: Sequence[Question | JsonObject]
    when: IntakeWhen | str = field(default=IntakeWhen.THREAD_START, kw_only=True)
    preamble: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", IntakeWhen(self.when))
        object.__setattr__(self, "questions", self.question_set().questions)

    def question_set(self) -> QuestionSet:
        """What the card asks."""
        return question_set(self.questions, preamble=self.preamble)
