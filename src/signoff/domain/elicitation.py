"""Question sets: what the user is asked (WIRE 6.4), and what came of it. Authored by people or sent by a model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import SchemaError

from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.validation import explain
from signoff.errors import InvalidInput

QUESTIONS_MAX = 100
VALUES_MAX = 100
VALUE_CHARS_MAX = 4096

Label: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=VALUE_CHARS_MAX)]
InputType: TypeAlias = Literal["text", "textarea", "number", "boolean", "date", "email", "url", "select"]

_NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URL = re.compile(r"https?://[^\s/]+\S*", re.IGNORECASE)


class _Value(BaseModel):
    """camelCase on the wire, snake_case in Python; unknown fields are refused: a typo must not change a form."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    def as_json(self) -> JsonObject:
        """The wire's object; what is not set is left out."""
        return as_object(self.model_dump(mode="json", by_alias=True, exclude_none=True), what="a question set")


class Option(_Value):
    """One choice. `value` is what an answer holds, `label` what people read."""

    value: Text
    label: Label
    hotkey: Annotated[str, StringConstraints(min_length=1, max_length=16)] | None = None


class Input(_Value):
    """A typed field. `min` and `max` bound a number, a date (``YYYY-MM-DD``), or the length of a text.

    `pattern` must match the whole text; it is a regular expression without look-around and back-references,
    so that checking it takes time linear in the text.
    """

    type: InputType
    placeholder: Label | None = None
    required: bool | None = None
    min: int | float | str | None = None
    max: int | float | str | None = None
    pattern: Text | None = None

    def problem_with(self, value: str) -> str | None:
        """Why `value` is no answer to this field; None if it is one."""
        match self.type:
            case "number":
                if not _NUMBER.fullmatch(value):
                    return "must be a decimal number"
                return self._out_of_bounds(Decimal(value))
            case "boolean":
                return None if value in ("true", "false") else 'must be "true" or "false"'
            case "date":
                return self._out_of_bounds(value) if _is_date(value) else "must be a date, YYYY-MM-DD"
            case "email" if not _EMAIL.fullmatch(value):
                return "must be an e-mail address"
            case "url" if not _URL.fullmatch(value):
                return "must be a URL, http or https"
            case "select":
                return None
            case _:
                return self._out_of_bounds(len(value)) or self._off_pattern(value)

    def _out_of_bounds(self, value: Decimal | int | str) -> str | None:
        noun = "length must" if isinstance(value, int) else "must"
        # `_check` made sure that bounds and values compare: both numbers, or both dates.
        if self.min is not None and value < self.min:  # type: ignore[operator]
            return f"{noun} be at least {self.min}"
        if self.max is not None and value > self.max:  # type: ignore[operator]
            return f"{noun} be at most {self.max}"
        return None

    def _off_pattern(self, value: str) -> str | None:
        if self.pattern is None:
            return None
        try:
            _pattern(self.pattern).validate_python(value)
        except ValidationError:
            return f"must match {self.pattern}"
        return None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, bound in (("min", self.min), ("max", self.max)):
            if bound is not None:
                self._check_bound(name, bound)
        if self.min is not None and self.max is not None and self.min > self.max:  # type: ignore[operator]
            raise ValueError("min must not be above max")
        if self.pattern is not None:
            if self.type not in ("text", "textarea", "email", "url"):
                raise ValueError(f"pattern does not apply to type {self.type!r}")
            try:
                _pattern(self.pattern)
            except SchemaError as error:
                raise ValueError("pattern is not a regular expression (look-around is not allowed)") from error
        return self

    def _check_bound(self, name: str, bound: float | str) -> None:
        match self.type:
            case "date":
                if not isinstance(bound, str) or not _is_date(bound):
                    raise ValueError(f"{name} of a date must be YYYY-MM-DD")
            case "boolean" | "select":
                raise ValueError(f"{name} does not apply to type {self.type!r}")
            case _:
                if isinstance(bound, str):
                    raise ValueError(f"{name} must be a number")


class Question(_Value):
    """One question.

    A pick (no `input`) needs `options` and `defaults` drawn from them; a typed question may omit both.
    `multiple` lets an answer hold several values; `allow_free_text` lets a pick be answered with other text.
    """

    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    prompt: Text
    description: Text | None = None
    options: Annotated[tuple[Option, ...], Field(max_length=VALUES_MAX)] | None = None
    multiple: bool | None = None
    defaults: Annotated[tuple[Text, ...], Field(max_length=VALUES_MAX)] | None = None
    allow_free_text: bool | None = None
    input: Input | None = None

    @property
    def is_required(self) -> bool:
        """Whether "none" is no answer."""
        return self.input is not None and bool(self.input.required)

    def label_of(self, value: str) -> str:
        """What people read for `value`."""
        return next((option.label for option in self.options or () if option.value == value), value)

    def problem_with(self, values: Sequence[str]) -> str | None:
        """Why `values` are no answer to this question; None if they are one."""
        if len(values) > 1 and not self.multiple:
            return "takes one value"
        for value in values:
            if self.options and not self.allow_free_text and value not in self._option_values():
                return f"{value[:100]!r} is not one of the options"
            if self.input is not None and (problem := self.input.problem_with(value)):
                return problem
        return None

    def _option_values(self) -> tuple[str, ...]:
        return tuple(option.value for option in self.options or ())

    @model_validator(mode="after")
    def _check(self) -> Self:
        values = self._option_values()
        if not values and (self.input is None or self.input.type == "select"):
            raise ValueError("a pick needs options (a typed question an input other than 'select')")
        if len(set(values)) != len(values):
            raise ValueError("two options have the same value")
        if self.input is None and not self.defaults:
            raise ValueError("a pick needs defaults, drawn from its options: they stand when the user skips")
        if values and any(value not in values for value in self.defaults or ()):
            raise ValueError("every default must be the value of an option")
        if problem := self.problem_with(self.defaults or ()):
            raise ValueError(f"defaults: {problem}")
        return self


class QuestionSet(_Value):
    """What one card asks."""

    preamble: Text | None = None
    questions: Annotated[tuple[Question, ...], Field(min_length=1, max_length=QUESTIONS_MAX)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [question.id for question in self.questions]
        for id_ in ids:
            if ids.count(id_) > 1:
                raise ValueError(f"two questions have the id {id_!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a question set: a value for each question, given or by default.

    `defaulted` names the questions that took their defaults, `summary` is the answers in words.
    """

    answers: Mapping[str, Sequence[str]]
    skipped: bool = False
    defaulted: tuple[str, ...] = ()
    summary: str | None = None
    answered_by: str | None = None
    answered_via: str | None = None

    def as_json(self) -> JsonObject:
        """The wire's object: the call's output, and what the model reads."""
        value: JsonObject = {
            "answers": {id_: list(values) for id_, values in self.answers.items()},
            "skipped": self.skipped,
            "defaulted": list(self.defaulted),
        }
        optional = {"summary": self.summary, "answeredBy": self.answered_by, "answeredVia": self.answered_via}
        value.update({name: text for name, text in optional.items() if text is not None})
        return value

    @classmethod
    def from_json(cls, value: JsonObject) -> "Outcome":
        """The inverse of `as_json`."""
        return _OUTCOME.validate_python(value).outcome()


class _OutcomeJson(_Value):
    answers: dict[str, tuple[str, ...]]
    skipped: bool
    defaulted: tuple[str, ...]
    summary: str | None = None
    answered_by: str | None = None
    answered_via: str | None = None

    def outcome(self) -> Outcome:
        return Outcome(
            answers=self.answers,
            skipped=self.skipped,
            defaulted=self.defaulted,
            summary=self.summary,
            answered_by=self.answered_by,
            answered_via=self.answered_via,
        )


_OUTCOME = TypeAdapter(_OutcomeJson)


def question_set(questions: Sequence[Question | JsonObject], *, preamble: str | None = None) -> QuestionSet:
    """A checked question set, from `Question`s or their JSON.

    Raises:
        InvalidInput: says which question is malformed, and how.
    """
    return _checked({"preamble": preamble, "questions": list(questions)})


def parse_question_set(request: Json) -> QuestionSet:
    """A question set from its JSON: a model's `ask` arguments, or a stored request (whose `id` and `source` go).

    Raises:
        InvalidInput: says which question is malformed, and how.
    """
    if isinstance(request, dict):
        request = {name: value for name, value in request.items() if name not in ("id", "source")}
    return _checked(request)


def _checked(value: object) -> QuestionSet:
    try:
        return QuestionSet.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"malformed question set: {explain(error)}", field="questions") from error


def _is_date(value: str) -> bool:
    if not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _pattern(pattern: str) -> "TypeAdapter[str]":
    # pydantic's Rust engine: a pattern that a model wrote cannot make us backtrack for minutes.
    return TypeAdapter(Annotated[str, StringConstraints(pattern=f"^(?:{pattern})$")])
