"""Ways in which a world goes wrong at a chosen place."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from signoff.adapters.stores.sql.tx import SqlTx
from signoff.errors import StoreBusy
from signoff.testing.stores import Changed, MortalStore

T = TypeVar("T")


class Killed(Exception):
    """Raised at a commit: the process ends there."""


class KillAfter:
    """Kills the process once, right after the first commit of a transaction with this label; nobody hears of it."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.done = False

    def before_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""

    def after_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        if not self.done and any(label.startswith(self.label) for label in labels):
            self.done = True
            raise Killed


class BusyStore(MortalStore):
    """A store that is busy for the engine's next transactions, as often as the shared list is long."""

    def __init__(self, url: str, *, changed: Changed, refusals: list[str]) -> None:
        self._refusals = refusals
        super().__init__(url, changed=changed)

    async def transact(self, label: str, work: Callable[[SqlTx], T]) -> T:
        """See `SqlStore`."""
        if label.startswith("engine:") and self._refusals:
            raise StoreBusy(self._refusals.pop())
        return await super().transact(label, work)


class LosingStore(MortalStore):
    """A store that loses the first piece with this label that nobody waits for; what follows is not lost."""

    def __init__(self, url: str, *, changed: Changed, loses: str) -> None:
        self._loses: str | None = loses
        super().__init__(url, changed=changed)

    def transact_soon(self, label: str, work: Callable[[SqlTx], None]) -> None:
        """See `SqlStore`."""
        if label == self._loses:
            self._loses = None
        else:
            super().transact_soon(label, work)


@contextmanager
def refusing_inserts(database: Path, table: str, when: str) -> Iterator[None]:
    """While in here the database itself refuses rows of `table` for which the SQL condition `when` holds."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(
            f"CREATE TRIGGER broken BEFORE INSERT ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        connection.commit()
        try:
            yield
        finally:
            connection.execute("DROP TRIGGER broken")
            connection.commit()
