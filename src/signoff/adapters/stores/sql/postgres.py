"""PostgreSQL: transactions side by side on a pool, and wake-ups in all processes by NOTIFY."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, OperationalError

from signoff.adapters.stores.sql.batch import Ended, Job, Life, StoreKilled, run_batch
from signoff.adapters.stores.sql.listener import CHANNEL, Listener
from signoff.adapters.stores.sql.patience import CommitUnknown, NotYet, Patience, part
from signoff.adapters.stores.sql.statement import execute
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.adapters.stores.sql.types import escape
from signoff.errors import ConfigurationError, StoreBusy

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

READERS = 4
WRITERS = 8
_SOON_S = 0.05

#: How long a process may sleep in the middle of a transaction. One that is paused, or whose machine is gone, would
#: keep the rows it locked from everybody for as long as its connection looks alive.
ASLEEP_S = 5.0

#: Serialization failure, deadlock, lock and statement timeouts, asleep in a transaction; and by class: connection,
#: resources, operator.
_TRANSIENT = frozenset({"40001", "40P01", "55P03", "57014", "25P03"})
_TRANSIENT_CLASSES = frozenset({"08", "53", "57"})

_BEFORE_COMMIT = """
SELECT txid_current(), (SELECT count(*) FROM (SELECT pg_notify(%(channel)s, stream)
                        FROM unnest(%(streams)s::text[]) AS stream OFFSET 0) AS told)
"""


class PostgresTransaction:
    """`batch.Dialect` for one transaction of PostgreSQL."""

    def __init__(self, was_committed: Callable[[int], bool]) -> None:
        self._was_committed = was_committed
        self._txid = 0

    def begin(self, connection: Connection) -> None:
        execute(connection, "BEGIN")

    def before_commit(self, connection: Connection, streams: frozenset[str]) -> None:
        told = {"channel": CHANNEL, "streams": [escape(stream_id) for stream_id in streams]}
        self._txid = execute(connection, _BEFORE_COMMIT, told).fetchall()[0][0]

    def commit(self, connection: Connection) -> None:
        try:
            execute(connection, "COMMIT")
        except DBAPIError as error:
            # The connection may break after the server has committed: ask it, or the work would be done twice.
            if not error.connection_invalidated or not self._was_committed(self._txid):
                raise

    def is_transient(self, error: DBAPIError) -> bool:
        return is_transient(error)


def is_transient(error: DBAPIError) -> bool:
    """See `batch.Dialect.is_transient`."""
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # the connection broke, or could not be made
        return error.connection_invalidated or isinstance(error, OperationalError)
    return state in _TRANSIENT or state[:2] in _TRANSIENT_CLASSES


def _end_if_asleep(connection: "psycopg.Connection", _record: object) -> None:
    """Have the server give up a transaction after `ASLEEP_S`, unless it was told how long by somebody else."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
            " WHERE current_setting('idle_in_transaction_session_timeout') = '0'",
            (f"{ASLEEP_S * 1000:.0f}",),
        )
    connection.commit()


class PostgresBackend:
    """A PostgreSQL database, shared with any number of other processes.

    Transactions run side by side; those submitted in one turn of the event loop share one, in order. Jobs that
    nobody waits for are carried by the next transaction or go after 50 ms. What is submitted while they are on their
    way starts after they have arrived, together.
    """

    readers = READERS

    def __init__(
        self,
        url: URL,
        *,
        patience: timedelta,
        life: Life,
        deliver: Callable[[Sequence[Ended]], None],
        wake: Callable[[Iterable[str] | None], None],
    ) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            raise ConfigurationError("PostgreSQL needs a driver: pip install 'signoff[postgres]'") from error
        self.engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            # Transactions are begun and ended by statements, as on SQLite; the driver must not add its own.
            isolation_level="AUTOCOMMIT",
            pool_size=READERS + WRITERS + 1,
            max_overflow=0,
        )
        event.listen(self.engine, "connect", _end_if_asleep)
        self._patience = Patience(patience, is_transient)
        self._life = life
        self._deliver = deliver
        self._listener = Listener(self.engine, wake)
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="signoff-postgres-writer")
        self._changed = threading.Condition()
        self._queue: list[Job] = []
        self._flush_at = 0.0
        self._carrying = False
        self._open = 0
        self._closing = False
        self._flusher = threading.Thread(target=self._flush, name="signoff-postgres-flusher", daemon=True)

    def connect(self) -> Engine:
        """Try one connection. Blocks."""
        self._patience.insist("a connection", lambda: self.engine.connect().close())
        return self.engine

    def start(self) -> None:
        """Begin to write."""
        self._flusher.start()

    def close(self) -> None:
        """Write what was submitted, then end. Blocks."""
        with self._changed:
            self._closing = True
            self._send()
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._open or self._queue) or self._life.over)
        self._pool.shutdown()
        if self._flusher.ident is not None:
            self._flusher.join()
        self._listener.close()
        self.engine.dispose()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Take the jobs of one turn of the event loop, in order."""
        with self._changed:
            first = not self._queue
            self._queue.extend(jobs)
            if any(job.future is not None for job in jobs):
                self._send()
            elif first:
                self._flush_soon()

    def peek(self, work: Callable[[SqlTx], T]) -> T:  # noqa: ARG002
        """Every look at a server waits for the network."""
        raise NotYet

    def read(self, work: Callable[[SqlTx], T]) -> T:
        """Run `work` on a snapshot of what is committed. Blocks."""
        return self._patience.insist("a read", lambda: self._read(work))

    def watch(self, watching: bool) -> None:
        """Listen to other processes from the first reader on."""
        if watching:
            self._listener.start()

    def _send(self) -> None:
        """Start a transaction of what is queued, unless pieces are on their way."""
        if not self._queue or self._carrying or self._life.over:
            return
        jobs, self._queue = self._queue, []
        self._carrying = any(job.future is None for job in jobs)
        self._open += 1
        self._pool.submit(self._run, jobs)

    def _run(self, jobs: Sequence[Job]) -> None:
        try:
            ended = self._patience.settle(jobs, self._commit)
        except StoreKilled:
            with self._changed:
                self._changed.notify_all()
            return
        with self._changed:
            refused, over = ([], ended) if self._closing else part(jobs, ended)
            self._deliver(over)
            self._open -= 1
            if any(job.future is None for job in jobs):
                self._arrived(refused)
            self._changed.notify_all()

    def _arrived(self, refused: Sequence[Job]) -> None:
        """Pieces have arrived, or were refused and go first of what comes next."""
        self._carrying = False
        self._queue[:0] = refused
        if self._closing or any(job.future is not None for job in self._queue):
            self._send()
        elif refused:
            self._flush_soon()

    def _flush_soon(self) -> None:
        self._flush_at = time.monotonic() + _SOON_S
        self._changed.notify_all()

    def _commit(self, jobs: Sequence[Job]) -> Ended:
        if self._life.over:
            raise StoreKilled
        with self.engine.connect() as connection:
            return run_batch(connection, jobs, PostgresTransaction(self._was_committed), self._life)

    def _was_committed(self, txid: int) -> bool:
        """What became of a transaction whose COMMIT got no answer. Raises `CommitUnknown` if nobody can tell."""

        def ask() -> bool:
            with self.engine.connect() as connection:
                status = connection.exec_driver_sql("SELECT txid_status(%(txid)s)", {"txid": txid}).scalar_one()
            match status:
                case "committed":
                    return True
                case "aborted":
                    return False
                case _:  # the server has not noticed that the connection is gone
                    raise NotYet(f"transaction {txid} is {status}")

        try:
            return self._patience.insist("to say whether it committed", ask)
        except StoreBusy as busy:
            raise CommitUnknown(str(busy)) from busy

    def _read(self, work: Callable[[SqlTx], T]) -> T:
        with self.engine.connect() as connection:
            execute(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return work(SqlTx(connection))
            finally:
                execute(connection, "ROLLBACK")

    def _flush(self) -> None:
        with self._changed:
            while not (self._closing or self._life.over):
                left = self._flush_at - time.monotonic()
                if not self._queue or self._carrying:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    self._send()
