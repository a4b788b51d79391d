"""Conditions on a call's arguments. They know three answers: yes, no, and "that cannot be said"."""

from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Annotated, Final, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from signoff.domain.jsonvalue import Json


def _as_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not Decimal(value).is_finite():
        raise ValueError("must be a number")
    return value


def _as_scalar(value: object) -> object:
    return value if isinstance(value, bool | str) else _as_number(value)


Number: TypeAlias = Annotated[int | float, BeforeValidator(_as_number)]
Scalar: TypeAlias = Annotated[bool | int | float | str, BeforeValidator(_as_scalar)]

#: True and False are answers; None means that the condition could not be evaluated.
Answer: TypeAlias = bool | None

_COMPARISONS: Final[dict[str, Callable[[Decimal, Decimal], bool]]] = {
    "above": lambda value, limit: value > limit,
    "at_least": lambda value, limit: value >= limit,
    "below": lambda value, limit: value < limit,
    "at_most": lambda value, limit: value <= limit,
}


class Condition(BaseModel):
    """What must hold of one argument; of several keys, all must.

    Numbers are compared as numbers, also where an argument writes a decimal as text (``"12.50"``). Texts are
    compared exactly. `missing` asks whether the argument is absent or null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    equals: Scalar | None = None
    one_of: tuple[Scalar, ...] | None = Field(default=None, alias="in", min_length=1)
    above: Number | None = None
    at_least: Number | None = None
    below: Number | None = None
    at_most: Number | None = None
    missing: StrictBool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("say what must hold: equals, in, above, at_least, below, at_most or missing")
        if any(getattr(self, name) is None for name in self.model_fields_set):
            raise ValueError("null is nothing to compare with; say missing = true")
        if self.missing and len(self.model_fields_set) > 1:
            raise ValueError("an argument that is missing has no value to compare")
        return self

    def holds(self, value: Json) -> Answer:
        """Whether `value` (None: absent or null) meets the condition."""
        if self.missing is not None and self.missing is not (value is None):
            return False
        if self.missing:
            return True
        return conjunction(self._answers(value))

    def _answers(self, value: Json) -> Iterable[Answer]:
        if self.equals is not None:
            yield _equal(value, self.equals)
        if self.one_of is not None:
            yield _disjunction(_equal(value, candidate) for candidate in self.one_of)
        for name, compare in _COMPARISONS.items():
            limit = getattr(self, name)
            if limit is not None:
                number = _number(value)
                yield None if number is None else compare(number, Decimal(limit))


def conjunction(answers: Iterable[Answer]) -> Answer:
    """ "All of them": one no is enough for no, and without one a single doubt is doubt."""
    known = list(answers)
    if any(answer is False for answer in known):
        return False
    return None if any(answer is None for answer in known) else True


def _disjunction(answers: Iterable[Answer]) -> Answer:
    known = list(answers)
    if any(known):
        return True
    return None if all(answer is None for answer in known) else False


def argument(arguments: Json, path: str) -> Json:
    """The value at a dotted path; None where there is none, or where the path leads through something else."""
    value = arguments
    for step in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _equal(value: Json, expected: bool | int | float | str) -> Answer:
    """Values of different kinds are not unequal but not comparable: ``"5000"`` against ``5000`` is a doubt."""
    match expected:
        case bool():
            return value is expected if isinstance(value, bool) else None
        case str():
            return value == expected if isinstance(value, str) else None
        case _:
            number = None if isinstance(value, str) else _number(value)
            return None if number is None else number == Decimal(expected)


def _number(value: Json) -> Decimal | None:
    match value:
        case bool():
            return None
        case int() | float():
            return Decimal(value)
        case str():
            try:
                number = Decimal(value)
            except InvalidOperation:
                return None
            return number if number.is_finite() else None
        case _:
            return None
