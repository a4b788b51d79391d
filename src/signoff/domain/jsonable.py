"""What users' functions return, as JSON."""

from collections.abc import Iterator

from pydantic_core import to_jsonable_python

from signoff.domain.jsonvalue import Json, normalise
from signoff.errors import NotJson


def jsonable(value: object, *, what: str, bytes_max: int) -> Json:
    """`value` as JSON: pydantic models, dataclasses, dates, decimals, UUIDs, enums and the like are converted.

    Models are written by alias, bytes as UTF-8 text. See `normalise` for what is refused besides.

    Raises:
        NotJson: something in it cannot be converted, or it contains itself.
        TooLarge: the encoded value is over the bound.
    """
    if isinstance(value, Iterator):
        # An iterator can be read once, and need not end: a replay could never see the same value.
        raise NotJson(what=what, reason=f"a {type(value).__name__} is an iterator; return a list")
    try:
        plain = to_jsonable_python(value, by_alias=True)
        return normalise(plain, what=what, bytes_max=bytes_max)
    except (ValueError, TypeError, RecursionError) as error:
        # pydantic's serialization errors are ValueErrors; so is the refusal of an integer with too many digits.
        raise NotJson(what=what, reason=_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]
