"""Column types that mean the same in SQLite and PostgreSQL.

Every value that goes in comes out equal: text with NUL and lone surrogates, JSON, instants to the microsecond,
money to a picodollar.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from signoff.adapters.stores.money import exact
from signoff.domain.jsonvalue import Json, decode, encode

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")

_ESCAPE = "\x10"  # DLE, "data link escape": nobody types it
_UNSAFE = re.compile("[\x00\x10\ud800-\udfff]")
_ESCAPED = re.compile("\x10([0-9a-f]{4})")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def escape(text: str) -> str:
    """Text that any database takes: NUL (PostgreSQL refuses it) and lone surrogates (no UTF-8) are escaped."""
    # Nothing that is printable is unsafe, and this is quick to ask.
    if text.isprintable() or _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda match: f"{_ESCAPE}{ord(match[0]):04x}", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970 of an aware instant; a naive one raises `TypeError`."""
    return (instant - _EPOCH) // _MICROSECOND


def instant_of(value: int) -> datetime:
    """The inverse of `microseconds`, aware UTC."""
    return _EPOCH + timedelta(microseconds=value)


class Converted(TypeDecorator[T]):
    """A type whose values two functions make into the driver's own and back; neither is ever given None.

    `Statement` calls these functions as they are: SQLAlchemy's way through a `TypeDecorator` takes longer than what
    they do.
    """

    def to_driver(self) -> Callable[[Any], Any]:
        """The function that makes what the driver takes."""
        raise NotImplementedError

    def from_driver(self) -> Callable[[Any], T]:
        """Its inverse."""
        raise NotImplementedError

    def process_bind_param(self, value: T | None, dialect: Dialect) -> Any:  # noqa: ARG002
        return None if value is None else self.to_driver()(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> T | None:  # noqa: ARG002
        return None if value is None else self.from_driver()(value)


class SafeText(Converted[str]):
    """Any Python string. PostgreSQL compares it by code points, as SQLite and Python do."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Text:
        """Byte order in PostgreSQL too: ids sort by time, and a locale's order would break that."""
        return Text(collation="C") if dialect.name == "postgresql" else Text()

    def to_driver(self) -> Callable[[str], str]:
        return escape

    def from_driver(self) -> Callable[[str], str]:
        return unescape


class JsonText(Converted[Json]):
    """JSON as ASCII text; JSON null and SQL NULL are the same None."""

    impl = Text
    cache_ok = True

    def to_driver(self) -> Callable[[Json], str]:
        return encode

    def from_driver(self) -> Callable[[str], Json]:
        return decode


class Words(Converted[tuple[str, ...]]):
    """A few short strings, in order."""

    impl = Text
    cache_ok = True

    def to_driver(self) -> Callable[[tuple[str, ...]], str]:
        return lambda words: encode(list(words))

    def from_driver(self) -> Callable[[str], tuple[str, ...]]:
        return _words_of


def _words_of(text: str) -> tuple[str, ...]:
    words = decode(text)
    return tuple(str(word) for word in words) if isinstance(words, list) else ()


class Word(Converted[E], Generic[E]):
    """A member of a `StrEnum`, by its value. A word that is not in it raises `ValueError` when read."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[E]) -> None:
        super().__init__()
        self.words = words

    def to_driver(self) -> Callable[[E], str]:
        return attrgetter("_value_")

    def from_driver(self) -> Callable[[str], E]:
        return self.words


class Instant(Converted[datetime]):
    """An aware instant, as integer microseconds since 1970 UTC: exact, and it sorts."""

    impl = BigInteger
    cache_ok = True

    def to_driver(self) -> Callable[[datetime], int]:
        return microseconds

    def from_driver(self) -> Callable[[int], datetime]:
        return instant_of


class Money(Converted[Decimal]):
    """US dollars as integer picodollars, so that databases add them exactly. Up to about nine million dollars."""

    impl = BigInteger
    cache_ok = True

    def to_driver(self) -> Callable[[Decimal], int]:
        return lambda dollars: int(exact(dollars).scaleb(12))

    def from_driver(self) -> Callable[[int | Decimal], Decimal]:
        return lambda picodollars: Decimal(int(picodollars)).scaleb(-12)
