"""`ports.store.Store` over SQLite or PostgreSQL."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from signoff.adapters.stores.sql.batch import CommitFaults, Ended, Job, Life
from signoff.adapters.stores.sql.migrate import require_current, upgrade
from signoff.adapters.stores.sql.patience import NotYet
from signoff.adapters.stores.sql.postgres import PostgresBackend
from signoff.adapters.stores.sql.sqlite import SqliteBackend
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.adapters.stores.subscriptions import Subscriptions
from signoff.errors import ConfigurationError
from signoff.ports.store import Emission

T = TypeVar("T")

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=30)


class Backend(Protocol):
    """One kind of database. `submit` and `watch` return at once; the rest blocks and is called in threads."""

    #: How many reads may run side by side.
    readers: int

    def connect(self) -> Engine: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def submit(self, jobs: Sequence[Job]) -> None: ...

    def read(self, work: Callable[[SqlTx], T]) -> T: ...

    def peek(self, work: Callable[[SqlTx], T]) -> T:
        """Read in the event loop's thread; raises `NotYet` instead of waiting for anything but a few pages."""
        ...

    def watch(self, watching: bool) -> None: ...


class SqlStore:
    """People's side of signoff in a database: `sqlite:///desk.db` or `postgresql://user@host/database`.

    On SQLite all writes share one thread and commit in groups. Writers in other processes on the same file are
    waited for, and their frames are noticed within 100 ms. On PostgreSQL transactions run side by side. Those
    submitted in one turn of the event loop take effect in their order; otherwise await one before the next.

    A task that is cancelled while it awaits `transact` does not know whether the transaction took effect.

    `url` is the database's, as it was given.
    """

    def __init__(
        self, url: str, *, migrate: bool = True, patience: timedelta = PATIENCE, faults: CommitFaults | None = None
    ) -> None:
        """
        Args:
            url: a database of its own, or on PostgreSQL a schema of its own (``?options=-csearch_path=signoff``).
            migrate: bring an old schema up to date on `open`; otherwise `open` refuses it.
            patience: how long a locked or lost database is tried again before `StoreBusy`.
            faults: for simulations.

        Raises:
            ConfigurationError: the URL names no database that signoff can use.
        """
        try:
            parsed = make_url(url)
        except ArgumentError as error:
            raise ConfigurationError(f"not a database URL: {error}") from error
        match parsed.get_backend_name():
            case "sqlite":
                kind: type[SqliteBackend] | type[PostgresBackend] = SqliteBackend
            case "postgresql":
                kind = PostgresBackend
            case other:
                raise ConfigurationError(f"signoff keeps its rows in sqlite or postgresql, not in {other!r}")
        self.url = url
        self._life = Life(faults)
        self._backend: Backend = kind(
            parsed, patience=patience, life=self._life, deliver=self._deliver_soon, wake=self._wake_soon
        )
        self._migrate = migrate
        self._subscriptions = Subscriptions()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers = ThreadPoolExecutor(self._backend.readers, thread_name_prefix="signoff-reader")
        self._submitted: list[Job] = []
        self._closed = False

    async def open(self) -> None:
        """See `ports.store.Store`.

        Raises:
            ConfigurationError: the database cannot be opened, or its schema is not the one this version needs.
            StoreBusy: it cannot be reached within the store's patience.
        """
        try:
            await asyncio.to_thread(self._connect)
        except BaseException:
            await asyncio.to_thread(self._disconnect)
            raise
        self._loop = asyncio.get_running_loop()
        self._backend.start()

    async def close(self) -> None:
        """See `ports.store.Store`."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            self._hand_over()
        await asyncio.to_thread(self._disconnect)

    async def transact(self, label: str, work: Callable[[SqlTx], T]) -> T:
        """See `ports.store.Store`."""
        future: asyncio.Future[T] = self._running().create_future()
        self._submit(Job(label=label, work=work, future=future))
        return await future

    def transact_soon(self, label: str, work: Callable[[SqlTx], None]) -> None:
        """See `ports.store.Store`."""
        self._submit(Job(label=label, work=work, future=None))

    async def read(self, work: Callable[[SqlTx], T]) -> T:
        """See `ports.store.Store`."""
        loop = self._running()
        result = await loop.run_in_executor(self._readers, self._backend.read, work)
        if self._life.over:
            await loop.create_future()  # the dead hear nothing
        return result

    async def peek(self, work: Callable[[SqlTx], T]) -> T:
        """See `ports.store.Store`."""
        loop = self._running()
        try:
            result = self._backend.peek(work)
        except NotYet:
            return await self.read(work)
        if self._life.over:
            await loop.create_future()
        return result

    def subscribe(self, stream_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """See `ports.store.Store`."""
        unsubscribe = self._subscriptions.add(stream_id, wake)
        self._backend.watch(True)

        def end() -> None:
            unsubscribe()
            self._backend.watch(bool(self._subscriptions))

        return end

    def carry(self, take: Callable[[Sequence[Emission]], None]) -> Callable[[], None]:
        """See `ports.store.Store`."""
        return self._subscriptions.carry(take)

    def _connect(self) -> None:
        engine = self._backend.connect()
        if self._migrate:
            upgrade(engine)
        else:
            require_current(engine)

    def _disconnect(self) -> None:
        self._readers.shutdown()
        self._backend.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._closed:
            raise RuntimeError("the store is not open")
        return self._loop

    def _submit(self, job: Job) -> None:
        # Handed over once a turn of the loop: whatever becomes ready together is committed together.
        loop = self._running()
        if not self._submitted:
            loop.call_soon(self._hand_over)
        self._submitted.append(job)

    def _hand_over(self) -> None:
        if self._submitted:
            jobs, self._submitted = self._submitted, []
            self._backend.submit(jobs)

    def _deliver_soon(self, batches: Sequence[Ended]) -> None:
        self._call_in_loop(self._deliver, batches)

    def _wake_soon(self, stream_ids: Iterable[str] | None) -> None:
        self._call_in_loop(self._subscriptions.wake, stream_ids)

    def _call_in_loop(self, callback: Callable[[Any], None], argument: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, argument)
        except RuntimeError:  # the loop has ended, so nobody waits any more
            logger.debug("an outcome came after the event loop had ended")

    def _deliver(self, batches: Sequence[Ended]) -> None:
        for ended in batches:
            for outcome in ended.outcomes:
                future = outcome.job.future
                if future is None:
                    if outcome.error is not None:
                        logger.error("%r was dropped", outcome.job.label, exc_info=outcome.error)
                elif future.done():  # its task was cancelled meanwhile
                    continue
                elif outcome.error is not None:
                    future.set_exception(outcome.error)
                else:
                    future.set_result(outcome.result)
            for callback in ended.callbacks:
                try:
                    callback()
                except Exception:
                    logger.exception("a callback after a commit failed")
            self._subscriptions.tell(ended.emitted)
