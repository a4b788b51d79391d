"""SQLite: one writer thread that commits whatever is ready together, and readers beside it."""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from signoff.adapters.stores.sql.batch import Ended, Job, Life, StoreKilled, run_batch
from signoff.adapters.stores.sql.patience import NotYet, Patience, part
from signoff.adapters.stores.sql.statement import execute
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.errors import ConfigurationError

T = TypeVar("T")

READERS = 4
_BATCH_MAX = 256
_SOON_S = 0.05
_WATCH_S = 0.1
_VERSION_MIN = (3, 35, 0)  # RETURNING

_TRANSIENT = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


class SqliteDialect:
    """`batch.Dialect` for SQLite."""

    def begin(self, connection: Connection) -> None:
        # IMMEDIATE takes the write lock now: a transaction that has begun never fails for a lock.
        execute(connection, "BEGIN IMMEDIATE")

    def before_commit(self, connection: Connection, streams: frozenset[str]) -> None:
        """Nothing to tell: other processes look at the file's version."""

    def commit(self, connection: Connection) -> None:
        execute(connection, "COMMIT")

    def is_transient(self, error: DBAPIError) -> bool:
        code = getattr(error.orig, "sqlite_errorcode", None)
        return isinstance(code, int) and code & 0xFF in _TRANSIENT


class SqliteBackend:
    """A database file.

    All writes go through one thread in the order they were submitted. Everything that is queued when it looks is
    one transaction: many runs share one fsync. Another process on the same file is waited for.
    """

    dialect = SqliteDialect()
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
        if url.database in (None, "", ":memory:"):
            raise ConfigurationError("SqlStore needs a database file (sqlite:///desk.db); in memory use MemoryStore")
        if sqlite3.sqlite_version_info < _VERSION_MIN:
            raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or later is needed")
        self._url = url
        self._patience = Patience(patience, self.dialect.is_transient)
        self._life = life
        self._deliver = deliver
        self._wake = wake
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._somebody_waits = False
        self._flush_at = 0.0
        self._watching = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._own = threading.local()
        self._reading: list[Connection] = []
        self._peeking: Connection | None = None
        self._data_version: int | None = None
        self._look_at = 0.0

    def connect(self) -> Engine:
        """Open the file (creating it) and put it into WAL mode. Blocks."""
        self.engine = create_engine(
            self._url,
            poolclass=QueuePool,
            pool_size=READERS + 2,  # the writer's, and the one to peek through
            max_overflow=0,
            # Transactions are begun and ended by statements; the driver must not add its own.
            connect_args={"check_same_thread": False, "isolation_level": None, "timeout": 5.0},
        )
        event.listen(self.engine, "connect", _set_up)
        self._patience.insist("to open the file", self._enter_wal_mode)
        return self.engine

    def start(self) -> None:
        """Begin to write."""
        self._thread = threading.Thread(target=self._write, name="signoff-sqlite-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what was submitted, then end. Blocks."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._close_readers()
        self.engine.dispose()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, in order."""
        if self._life.over:
            return
        with self._changed:
            if not self._queue:
                self._flush_at = time.monotonic() + _SOON_S
            self._queue.extend(jobs)
            if any(job.future is not None for job in jobs):
                self._somebody_waits = True
            if self._somebody_waits or len(self._queue) == len(jobs):
                self._changed.notify()

    def read(self, work: Callable[[SqlTx], T]) -> T:
        """Run `work` on a snapshot of what is committed. Blocks."""
        return self._patience.insist("a read", lambda: self._read(work))

    def peek(self, work: Callable[[SqlTx], T]) -> T:
        """See `store.Backend`. Through a thread a small read takes five times as long, and ten times the CPU."""
        if self._peeking is None:
            self._peeking = self._reader()
            self._peeking.exec_driver_sql("PRAGMA busy_timeout = 0")
        try:
            return _look(self._peeking, work)
        except DBAPIError as error:
            if self.dialect.is_transient(error):
                raise NotYet from error
            raise

    def watch(self, watching: bool) -> None:
        """While somebody follows streams, look every 100 ms whether another process has committed."""
        with self._changed:
            self._watching = watching
            self._changed.notify()

    def _read(self, work: Callable[[SqlTx], T]) -> T:
        # Each thread keeps its connection: to take one from the pool and give it back takes longer than a small read.
        connection: Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._reader()
        return _look(connection, work)

    def _reader(self) -> Connection:
        connection = self.engine.connect()
        connection.exec_driver_sql("PRAGMA query_only = ON")
        self._reading.append(connection)
        return connection

    def _write(self) -> None:
        with self.engine.connect() as connection:
            # The pause between tries is ours: SQLite's own grows to 100 ms, too long to catch a short gap.
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            try:
                while (jobs := self._next(connection)) is not None:
                    self._settle(connection, jobs)
            except StoreKilled:
                return

    def _settle(self, connection: Connection, jobs: Sequence[Job]) -> bool:
        """Run the jobs and tell who waits. False: they go with the next ones, see `patience.part`."""
        ended = self._patience.settle(jobs, lambda members: run_batch(connection, members, self.dialect, self._life))
        with self._changed:
            refused, over = ([], ended) if self._closing else part(jobs, ended)
            if refused:
                self._queue.extendleft(reversed(refused))
                self._flush_at = time.monotonic() + _SOON_S
        self._deliver(over)
        return not refused

    def _next(self, connection: Connection) -> list[Job] | None:
        """Wait for jobs and take what is there; None when the store closes and nothing is left."""
        while True:
            if self._watching and time.monotonic() >= self._look_at:
                self._look(connection)
            with self._changed:
                now = time.monotonic()
                if self._queue and (self._somebody_waits or self._closing or now >= self._flush_at):
                    return self._take()
                if self._closing:
                    return None
                if not self._watching or now < self._look_at:
                    self._changed.wait(self._time_left(now))

    def _take(self) -> list[Job]:
        jobs = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_MAX))]
        self._somebody_waits = any(job.future is not None for job in self._queue)
        return jobs

    def _time_left(self, now: float) -> float | None:
        times = []
        if self._queue:
            times.append(self._flush_at)
        if self._watching:
            times.append(self._look_at)
        return max(0.0, min(times) - now) if times else None

    def _look(self, connection: Connection) -> None:
        """Wake all readers if another connection has committed; this one's own commits don't count."""
        self._look_at = time.monotonic() + _WATCH_S
        try:
            version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        except DBAPIError:
            return  # locked for a moment; the next look tells
        # The first look has nothing to compare with, so it wakes as well: a commit may have come before it.
        if version != self._data_version:
            self._wake(None)
        self._data_version = version

    def _close_readers(self) -> None:
        for connection in self._reading:
            # Not given back: the next one to take it from the pool would get a connection that only reads.
            connection.invalidate()
            connection.close()
        self._reading.clear()

    def _enter_wal_mode(self) -> None:
        with self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")


def _look(connection: Connection, work: Callable[[SqlTx], T]) -> T:
    execute(connection, "BEGIN")
    try:
        return work(SqlTx(connection))
    finally:
        execute(connection, "ROLLBACK")


def _set_up(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA synchronous = FULL")
