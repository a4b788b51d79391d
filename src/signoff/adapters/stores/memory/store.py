"""`ports.store.Store` over dicts."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from signoff.adapters.stores.memory.tables import Tables
from signoff.adapters.stores.memory.tx import MemoryTx
from signoff.adapters.stores.subscriptions import Subscriptions
from signoff.ports.store import Emission

T = TypeVar("T")

logger = logging.getLogger(__name__)


class MemoryStore:
    """Keeps everything in memory. A transaction runs at once, in the event loop, so none ever meets another."""

    def __init__(self) -> None:
        self._tables = Tables()
        self._subscriptions = Subscriptions()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """See `ports.store.Store`."""
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Afterwards nothing is accepted. The rows stay: `open` opens the same ones again."""
        self._loop = None

    async def transact(self, label: str, work: Callable[[MemoryTx], T]) -> T:
        """See `ports.store.Store`."""
        self._running()
        tx = MemoryTx(self._tables)
        try:
            result = work(tx)
        except BaseException:
            tx.undo.take_back()
            raise
        self._committed(tx, label)
        # As with a database, others get a turn before the caller goes on.
        await asyncio.sleep(0)
        return result

    def transact_soon(self, label: str, work: Callable[[MemoryTx], None]) -> None:
        """See `ports.store.Store`. Here it takes effect at once."""
        loop = self._running()
        tx = MemoryTx(self._tables)
        try:
            work(tx)
        except Exception:
            tx.undo.take_back()
            logger.exception("%r was dropped", label)
        else:
            loop.call_soon(self._committed, tx, label)

    async def read(self, work: Callable[[MemoryTx], T]) -> T:
        """See `ports.store.Store`."""
        self._running()
        tx = MemoryTx(self._tables)
        try:
            result = work(tx)
        finally:
            wrote = bool(tx.undo)
            tx.undo.take_back()
        if wrote:
            raise RuntimeError("a read must not write")
        return result

    peek = read

    def subscribe(self, stream_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """See `ports.store.Store`."""
        return self._subscriptions.add(stream_id, wake)

    def carry(self, take: Callable[[Sequence[Emission]], None]) -> Callable[[], None]:
        """See `ports.store.Store`."""
        return self._subscriptions.carry(take)

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the store is not open")
        return self._loop

    def _committed(self, tx: MemoryTx, label: str) -> None:
        for callback in tx.callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a callback after the commit of %r failed", label)
        self._subscriptions.tell(tx.emitted)
