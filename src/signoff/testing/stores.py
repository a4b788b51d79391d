"""Stores for a `World`: they tell of every commit, and the ones with a database can lose their process."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from signoff.adapters.stores.memory import MemoryStore
from signoff.adapters.stores.memory.tx import MemoryTx
from signoff.adapters.stores.sql import SqlStore
from signoff.adapters.stores.sql.batch import CommitFaults
from signoff.adapters.stores.sql.tx import SqlTx

T = TypeVar("T")

Changed: TypeAlias = Callable[[], None]
"""Called in the event loop after each commit."""


class MortalStore(SqlStore):
    """A store on a database, whose process a test can kill.

    After `kill` nothing more is written, and whoever waits for the store, or asks it for anything, is cancelled: to
    the application it looks as if its process ended there. The database is free for the next process.
    """

    def __init__(self, url: str, *, changed: Changed, faults: CommitFaults | None = None) -> None:
        """
        Args:
            url: see `SqlStore`.
            changed: see `Changed`.
            faults: asked around each commit; what it raises kills the process there.
        """
        self.died = asyncio.Event()
        self._changed = changed
        self._waiting: set[asyncio.Task[object]] = set()
        super().__init__(url, faults=_Mortality(self, faults))

    def kill(self) -> None:
        """End this store's process, as it is."""
        self.died.set()
        for task in tuple(self._waiting):
            task.cancel()

    async def open(self) -> None:
        """See `SqlStore`."""
        await super().open()
        self._home = asyncio.get_running_loop()

    async def transact(self, label: str, work: Callable[[SqlTx], T]) -> T:
        """See `SqlStore`."""
        with self._asking():
            return await super().transact(label, work)

    def transact_soon(self, label: str, work: Callable[[SqlTx], None]) -> None:
        """See `SqlStore`."""
        if not self.died.is_set():
            super().transact_soon(label, work)

    async def read(self, work: Callable[[SqlTx], T]) -> T:
        """See `SqlStore`."""
        with self._asking():
            return await super().read(work)

    async def peek(self, work: Callable[[SqlTx], T]) -> T:
        """See `SqlStore`."""
        with self._asking():
            return await super().peek(work)

    def committed(self) -> None:
        """From the thread that commits: a transaction is in the database."""
        self._home.call_soon_threadsafe(self._changed)

    def kill_soon(self) -> None:
        """From the thread that commits: this process ends here."""
        self._home.call_soon_threadsafe(self.kill)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        if self.died.is_set():
            raise asyncio.CancelledError("the process of this store was killed")
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)


class _Mortality:
    """Stands between the store and its commits: the dead commit nothing."""

    def __init__(self, store: MortalStore, faults: CommitFaults | None) -> None:
        self._store = store
        self._faults = faults
        self._dead = False

    def before_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        if self._dead or self._store.died.is_set():
            raise _Killed
        if self._faults is not None:
            self._ask(self._faults.before_commit, labels)

    def after_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        if self._faults is not None:
            self._ask(self._faults.after_commit, labels)
        if self._store.died.is_set():
            raise _Killed
        self._store.committed()

    def _ask(self, hook: Callable[[Sequence[str]], None], labels: Sequence[str]) -> None:
        try:
            hook(labels)
        except BaseException:
            self._dead = True
            self._store.kill_soon()
            raise


class _Killed(Exception):
    """Tells the SQL store that its process is gone."""


class WatchedMemoryStore(MemoryStore):
    """A store in memory that tells of its commits. It has no process to lose."""

    def __init__(self, *, changed: Changed) -> None:
        self._changed = changed
        super().__init__()

    async def transact(self, label: str, work: Callable[[MemoryTx], T]) -> T:
        """See `MemoryStore`."""
        try:
            return await super().transact(label, work)
        finally:
            self._changed()

    def transact_soon(self, label: str, work: Callable[[MemoryTx], None]) -> None:
        """See `MemoryStore`."""
        super().transact_soon(label, work)
        self._changed()


WorldStore: TypeAlias = MortalStore | WatchedMemoryStore
StoreFactory: TypeAlias = Callable[[Changed], WorldStore]
"""Makes the store of each process of a world, all on the same rows."""


def sql_stores(url: str, *, faults: CommitFaults | None = None) -> StoreFactory:
    """Stores on one database. `faults` stays the same over restarts."""
    return lambda changed: MortalStore(url, changed=changed, faults=faults)


def memory_stores() -> StoreFactory:
    """The same rows in memory for every process, one after the other."""
    stores: list[WatchedMemoryStore] = []

    def make(changed: Changed) -> WatchedMemoryStore:
        if not stores:
            stores.append(WatchedMemoryStore(changed=changed))
        return stores[0]

    return make
