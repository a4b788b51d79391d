"""Answers to a question set: checked at the door, so that a stored one can always be read back."""

from collections.abc import Mapping
from dataclasses import dataclass

from signoff.domain.elicitation import QUESTIONS_MAX, VALUE_CHARS_MAX, VALUES_MAX, Outcome, Question, QuestionSet
from signoff.domain.jsonvalue import Json, clean_text
from signoff.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """A value list for each question of a set; `defaulted` names those that took their defaults."""

    values: Mapping[str, tuple[str, ...]]
    defaulted: tuple[str, ...] = ()


def validate_answers(asked: QuestionSet, answers: Json) -> Answers:
    """Check what a person sent and fill in defaults.

    Args:
        asked: the questions on the card.
        answers: an object of string arrays by question id. A question left out takes its defaults; an empty
            array means "none" and does not. None means: all left out.

    Raises:
        InvalidInput: ``answers["<id>"] <reason>``; nothing was accepted.
    """
    given = _string_lists(answers)
    known = {question.id for question in asked.questions}
    for id_ in given:
        if id_ not in known:
            raise _refusal(id_, "is not a question of this card")
    values: dict[str, tuple[str, ...]] = {}
    defaulted: list[str] = []
    for question in asked.questions:
        if question.id in given:
            values[question.id] = _checked(question, given[question.id])
        elif question.is_required and not question.defaults:
            raise _refusal(question.id, "is required")
        else:
            values[question.id] = question.defaults or ()
            defaulted.append(question.id)
    return Answers(values=values, defaulted=tuple(defaulted))


def answered(asked: QuestionSet, answers: Answers, *, by: str | None, via: str | None) -> Outcome:
    """What the model and the thread are told of given answers."""
    return Outcome(
        answers=answers.values,
        defaulted=answers.defaulted,
        summary=_summary(asked, answers.values),
        answered_by=by,
        answered_via=via,
    )


def skipped(asked: QuestionSet, *, by: str | None, via: str | None) -> Outcome:
    """The person would not answer: every question takes its defaults (or none)."""
    values = {question.id: question.defaults or () for question in asked.questions}
    return Outcome(
        answers=values,
        skipped=True,
        defaulted=tuple(values),
        summary=_summary(asked, values),
        answered_by=by,
        answered_via=via,
    )


def _string_lists(answers: Json) -> dict[str, tuple[str, ...]]:
    if answers is None:
        return {}
    if not isinstance(answers, dict):
        raise InvalidInput("answers must be an object of string arrays", field="answers")
    if len(answers) > QUESTIONS_MAX:
        raise InvalidInput(f"answers must name at most {QUESTIONS_MAX} questions", field="answers")
    return {id_: _string_list(id_, value) for id_, value in answers.items()}


def _string_list(id_: str, value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _refusal(id_, "must be an array of strings")
    if len(value) > VALUES_MAX:
        raise _refusal(id_, f"must have at most {VALUES_MAX} values")
    texts: list[str] = []
    for item in value:
        if not isinstance(item, str):
            raise _refusal(id_, "must be an array of strings")
        if len(item) > VALUE_CHARS_MAX:
            raise _refusal(id_, f"must have values of at most {VALUE_CHARS_MAX} characters")
        texts.append(clean_text(item))
    return tuple(texts)


def _checked(question: Question, values: tuple[str, ...]) -> tuple[str, ...]:
    # An untouched form field arrives as an empty text: it says as much as no value.
    kept = tuple(dict.fromkeys(value for value in values if value.strip()))
    if not kept and question.is_required:
        raise _refusal(question.id, "is required")
    if problem := question.problem_with(kept):
        raise _refusal(question.id, problem)
    return kept


def _refusal(id_: str, reason: str) -> InvalidInput:
    return InvalidInput(f'answers["{id_[:64]}"] {reason}', field="answers")


def _summary(asked: QuestionSet, values: Mapping[str, tuple[str, ...]]) -> str:
    lines = []
    for question in asked.questions:
        labels = ", ".join(question.label_of(value) for value in values[question.id])
        lines.append(f"{question.prompt}: {labels or '(none)'}")
    return "\n".join(lines)
