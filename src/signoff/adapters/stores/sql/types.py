"""Column types that mean the same in SQLite and PostgreSQL.

Every value that goes in comes out equal: text with NUL and lone surrogates, JSON, instants to the microsecond,
money to a picodollar.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Generic, TypeVar

from sqlalchemy import BigInteger, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from signoff.adapters.stores.money import exact
from signoff.domain.jsonvalue import Json, decode, encode

E = TypeVar("E", bound=StrEnum)

_ESCAPE = "\x10"  # DLE, "data link escape": nobody types it
_UNSAFE = re.compile("[\x00\x10\ud800-\udfff]")
_ESCAPED = re.compile("\x10([0-9a-f]{4})")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def escape(text: str) -> str:
    """Text that any database takes: NUL (PostgreSQL refuses it) and lone surrogates (no UTF-8) are escaped."""
    if _UNSAFE.search(text) is None:
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


class SafeText(TypeDecorator[str]):
    """Any Python string. PostgreSQL compares it by code points, as SQLite and Python do."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Text:
        """Byte order in PostgreSQL too: ids sort by time, and a locale's order would break that."""
        return Text(collation="C") if dialect.name == "postgresql" else Text()

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else unescape(value)


class JsonText(TypeDecorator[Json]):
    """JSON as ASCII text; JSON null and SQL NULL are the same None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Json, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else encode(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Json:  # noqa: ARG002
        return None if value is None else decode(value)


class Words(TypeDecorator[tuple[str, ...]]):
    """A few short strings, in order."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else encode(list(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:  # noqa: ARG002
        if value is None:
            return None
        words = decode(value)
        return tuple(str(word) for word in words) if isinstance(words, list) else ()


class Word(TypeDecorator[E], Generic[E]):
    """A member of a `StrEnum`, by its value. A word that is not in it raises `ValueError` when read."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[E]) -> None:
        super().__init__()
        self.words = words

    def process_bind_param(self, value: E | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.value

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:  # noqa: ARG002
        return None if value is None else self.words(value)


class Instant(TypeDecorator[datetime]):
    """An aware instant, as integer microseconds since 1970 UTC: exact, and it sorts."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else instant_of(value)


class Money(TypeDecorator[Decimal]):
    """US dollars as integer picodollars, so that databases add them exactly. Up to about nine million dollars."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        return None if value is None else int(exact(value).scaleb(12))

    def process_result_value(self, value: int | Decimal | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002
        return None if value is None else Decimal(int(value)).scaleb(-12)
