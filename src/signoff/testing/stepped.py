"""A whole application in one thread: a test takes the same steps each time, so each step can be a place to die.

    with stepped() as run:
        run(play())

Time passes only where the test moves its clock. `idle()` returns once nothing can happen any more without that.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar

from sqlalchemy import Engine, event
from sqlalchemy.engine import make_url

from signoff.adapters.stores.sql.batch import CommitFaults, Job, StoreKilled
from signoff.adapters.stores.sql.sqlite import SqliteBackend, SqliteDialect
from signoff.testing.stores import Changed, MortalStore

P = ParamSpec("P")
T = TypeVar("T")


class Runner(Protocol):
    """Runs a coroutine to its end in a stepped loop."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


@contextmanager
def stepped() -> Iterator[Runner]:
    """A fresh event loop of this kind."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        yield runner.run


async def idle() -> None:
    """Return once nothing in the running loop can go on by itself."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SteppedLoop)
    await loop.idle()


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop that knows when it has nothing to do, and whose executor works at once."""

    def __init__(self) -> None:
        super().__init__(_IdleSelector(self._idle))
        self.set_default_executor(_AtOnce())
        self._reluctant: list[Callable[[], bool]] = []
        self._waiting: list[asyncio.Future[None]] = []

    def before_idling(self, work: Callable[[], bool]) -> None:
        """Have `work` called before the loop counts as idle; it says whether there was anything to do."""
        self._reluctant.append(work)

    async def idle(self) -> None:
        """See `idle` of the module."""
        future: asyncio.Future[None] = self.create_future()
        self._waiting.append(future)
        await future

    def _idle(self) -> bool:
        """The loop is about to sleep. True: there is something to do after all."""
        for work in self._reluctant:
            if work():
                return True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)
        return bool(waiting)


class _IdleSelector(selectors.SelectSelector):
    def __init__(self, idle: Callable[[], bool]) -> None:
        super().__init__()
        self._on_idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        sleeps = timeout is None or timeout > 0
        return super().select(0 if sleeps and self._on_idle() else timeout)


class _AtOnce(ThreadPoolExecutor):
    """Works where it is called. The event loop only accepts a thread pool as its default executor."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the caller's
            future.set_exception(error)
        return future


class SteppedStore(MortalStore):
    """The SQLite store without threads: it commits and reads in the event loop, and is otherwise the same code.

    What becomes ready in one turn of the loop is one commit, as with the writer thread. Writes that nobody waits for
    ride on the next commit, or have one of their own when the loop becomes idle; with `eager`, at once.

    The file is not synced to disk: what is tested here is a process that ends, and the operating system keeps what an
    ended process has written. The database must have its schema.
    """

    def __init__(
        self,
        url: str,
        *,
        changed: Changed,
        faults: CommitFaults | None = None,
        eager: bool = False,
        refusals: "Refusals | None" = None,
        patience: timedelta = timedelta(),
    ) -> None:
        """
        Args:
            url: of a SQLite database.
            changed, faults: see `MortalStore`.
            eager: see the class.
            refusals: what the database refuses.
            patience: see `SqlStore`.
        """
        super().__init__(url, changed=changed, faults=faults)
        self._single = _SingleThread(
            make_url(url), patience=patience, life=self._life, deliver=self._deliver_soon, wake=self._wake_soon
        )
        self._single.eager = eager
        if refusals is not None:
            self._single.dialect = _RefusingDialect(refusals)
        self._backend = self._single
        self._readers = _AtOnce()

    @property
    def commits(self) -> int:
        """How many `COMMIT`s the database itself has executed."""
        return self._single.commits

    def _connect(self) -> None:
        self._backend.connect()


class _SingleThread(SqliteBackend):
    eager = False
    commits = 0

    def connect(self) -> Engine:
        engine = super().connect()
        event.listen(engine, "connect", self._set_up)
        engine.dispose()  # connections that were made before the listener
        return engine

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        self._connection = self.engine.connect()
        self._connection.exec_driver_sql("PRAGMA busy_timeout = 0")
        loop.before_idling(self._flush)

    def submit(self, jobs: Sequence[Job]) -> None:
        self._queue.extend(jobs)
        if self.eager or any(job.future is not None for job in jobs):
            self._flush()

    def close(self) -> None:
        self._closing = True
        self._flush()
        self._connection.close()
        self._close_readers()
        self.engine.dispose()

    def watch(self, watching: bool) -> None:
        """Readers in other processes are none of this."""

    def _flush(self) -> bool:
        worked = False
        try:
            while self._queue and not self._life.over and self._settle(self._connection, self._take()):
                worked = True
        except StoreKilled:
            self._queue.clear()
        return worked

    def _set_up(self, connection: Any, _record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.set_trace_callback(self._count)

    def _count(self, statement: str) -> None:
        self.commits += statement == "COMMIT"


class Refusals(Protocol):
    """Asked around each transaction that the database is about to begin or commit; raises what the database says."""

    def begin(self) -> None: ...

    def commit(self) -> None: ...


class _RefusingDialect(SqliteDialect):
    def __init__(self, refusals: Refusals) -> None:
        self._refusals = refusals

    def begin(self, connection: Any) -> None:
        self._refusals.begin()
        super().begin(connection)

    def commit(self, connection: Any) -> None:
        self._refusals.commit()
        super().commit(connection)
