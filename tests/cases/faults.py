"""Ways in which a world goes wrong at a chosen place."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path


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
