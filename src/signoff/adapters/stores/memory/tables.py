"""Rows in dicts, and how a failed transaction gets them back."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeVar

from signoff.adapters.stores.money import exact
from signoff.domain.approval import Remembered, Vote
from signoff.domain.audit import AuditEntry
from signoff.domain.call import Call
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import decode, encode
from signoff.domain.run import Run, UsageEntry
from signoff.domain.thread import Message, Thread
from signoff.ports.store import IdempotencyRecord, OutboxEntry

K = TypeVar("K")
V = TypeVar("V")


class Row(Protocol):
    """A frozen dataclass of `domain`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Row)


@dataclass(slots=True, kw_only=True)
class Tables:
    """Everything a store holds, by key."""

    threads: dict[str, Thread] = field(default_factory=dict)
    last_messages: dict[str, int] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    votes: dict[tuple[str, str], Vote] = field(default_factory=dict)
    remembered: dict[tuple[str, str], Remembered] = field(default_factory=dict)
    audit: dict[tuple[str, int], AuditEntry] = field(default_factory=dict)
    audit_heads: dict[str, AuditEntry] = field(default_factory=dict)
    ledger: dict[str, UsageEntry] = field(default_factory=dict)
    keys: dict[tuple[str, str, str], IdempotencyRecord] = field(default_factory=dict)
    outbox: dict[str, OutboxEntry] = field(default_factory=dict)
    used_links: dict[str, str] = field(default_factory=dict)
    streams: dict[str, int] = field(default_factory=dict)
    frames: dict[tuple[str, int], Frame] = field(default_factory=dict)
    withdrawals: dict[tuple[str, int], int] = field(default_factory=dict)


class Undo:
    """Writes to tables, and remembers how to take them back."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return bool(self._steps)

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Insert or replace."""
        if key in table:
            before = table[key]
            self._steps.append(lambda: table.__setitem__(key, before))
        else:
            self._steps.append(lambda: table.pop(key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        """Delete, if it is there."""
        if key in table:
            before = table.pop(key)
            self._steps.append(lambda: table.__setitem__(key, before))

    def take_back(self) -> None:
        """Undo all of it, the last write first."""
        while self._steps:
            self._steps.pop()()


def own(row: R) -> R:
    """The row as a database would give it back: its JSON is a copy, its money is rounded."""
    return replace(row, **{item.name: _own(getattr(row, item.name)) for item in fields(row)})


def _own(value: object) -> object:
    match value:
        case dict() | list():
            return decode(encode(value))
        case Decimal():
            return exact(value)
        case _:
            return value
