"""What a running tool knows and can do besides its arguments."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from signoff.domain.actor import Actor
from signoff.domain.elicitation import Outcome, Question, question_set
from signoff.domain.frame import Frame, without_none
from signoff.domain.jsonable import jsonable
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import ControlFlow

UI_PROPS_BYTES_MAX = 64 * 1024


class NeedsAnswers(ControlFlow):
    """Unwinds a tool that asks the user. `request` is the question set (WIRE 6.4), `index` counts its asks from 0."""

    signoff_control_flow = "needs_answers"

    def __init__(self, request: JsonObject, index: int) -> None:
        super().__init__(f"question set {index} needs answers")
        self.request = request
        self.index = index


def _nowhere(_frame: Frame) -> None:
    """Outside a run nobody watches."""


def _never() -> bool:
    return False


def _no_cancellation(_callback: Callable[[], None]) -> None:
    """Outside a run nothing is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Handed to the parameter annotated `ToolContext`; never part of the schema the model sees.

    `idempotency_key` is the same on every attempt of this call: pass it on to whatever has the effect.
    `attempt` counts from 1. The last four fields are given by the runtime and may be left out in unit tests:
    `answers` are the outcomes of this call's earlier asks, and the callables must bear being called from a
    thread (synchronous tools run in one).
    """

    actor: Actor
    thread_id: str
    run_id: str
    call_id: str
    idempotency_key: str
    attempt: int = 1
    answers: tuple[JsonObject, ...] = ()
    send_frame: Callable[[Frame], None] = field(default=_nowhere, repr=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)
    add_cancel_callback: Callable[[Callable[[], None]], None] = field(default=_no_cancellation, repr=False)
    _asks: Iterator[int] = field(default_factory=itertools.count, init=False, repr=False, compare=False)
    _shows: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False, repr=False, compare=False)

    @property
    def cancelled(self) -> bool:
        """Whether the run was cancelled. A tool that looks may stop early; one that does not runs to its end."""
        return self.is_cancelled()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the event loop when the run is cancelled (at once, if it has been)."""
        self.add_cancel_callback(callback)

    def emit_ui(
        self,
        component: str,
        props: Mapping[str, object],
        version: str | None = None,
        fallback_text: str | None = None,
    ) -> None:
        """Show a component of the front end's in the chat. `fallback_text` is for front ends without it.

        Raises:
            NotJson: `props` cannot be written as JSON.
            TooLarge: `props` has more than 64 KiB.
        """
        frame = without_none(
            kind="ui",
            id=f"{self.call_id}:ui:{next(self._shows)}",
            component=component,
            props=jsonable(props, what=f"props of component {component!r}", bytes_max=UI_PROPS_BYTES_MAX),
            version=version,
            fallbackText=fallback_text,
            toolCallId=self.call_id,
        )
        self.send_frame(frame)

    async def ask(self, questions: Sequence[Question | JsonObject], preamble: str | None = None) -> Outcome:
        """Ask the user in the middle of the tool, and go on with the answers.

        The tool leaves memory while the user thinks and is then **run again from its start** with the answers
        at hand: code before `ask` runs again, so ask before the effect. Ask the same sets in the same order
        each time. Time spent waiting does not count against the tool's limit.

        Raises:
            InvalidInput: the question set is malformed.
        """
        index = next(self._asks)
        request = question_set(questions, preamble=preamble)
        if index < len(self.answers):
            return Outcome.from_json(self.answers[index])
        raise NeedsAnswers(request.as_json(), index)
