"""The transaction that all row operations share (`ports.store.Tx`)."""

from collections.abc import Callable

from sqlalchemy import Connection

from signoff.adapters.stores.sql.call_rows import CallRows
from signoff.adapters.stores.sql.frame_rows import FrameRows
from signoff.adapters.stores.sql.record_rows import RecordRows
from signoff.adapters.stores.sql.run_rows import RunRows
from signoff.adapters.stores.sql.thread_rows import ThreadRows
from signoff.ports.store import Emission


class SqlTx(ThreadRows, RunRows, CallRows, RecordRows, FrameRows):
    """`ports.store.Tx` over one SQLAlchemy connection, the same for SQLite and PostgreSQL.

    `connection` is open to the embedded engine, whose own tables change in the same transaction. Whoever uses it
    must not begin, commit or roll back.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.emitted: list[Emission] = []
        self.rung: list[str] = []
        self.callbacks: list[Callable[[], None]] = []

    def ring(self, stream_id: str) -> None:
        """Have the database wake the subscribers of `stream_id` in all processes, though nothing is emitted there."""
        self.rung.append(stream_id)

    def on_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)
