"""The sink that carries nothing: readers are woken by the store, and read it."""

import asyncio
from collections.abc import Sequence

from signoff.domain.frame import NumberedFrame
from signoff.ports.events import EventBus
from signoff.ports.store import Store


class DatabaseSink:
    """`ports.sink.Sink` over the store alone.

    Over any number of processes on PostgreSQL (LISTEN/NOTIFY) or on one SQLite file; over one process in memory.
    """

    def __init__(self, *, shared: bool) -> None:
        """`shared`: whether other processes see what the store holds."""
        self.shared = shared
        self._store: Store | None = None

    async def open(self, store: Store, events: EventBus) -> None:  # noqa: ARG002
        """See `ports.sink.Sink`."""
        self._store = store

    async def close(self) -> None:
        """See `ports.sink.Sink`."""

    def follow(self, stream_id: str) -> "DatabaseFollower":
        """See `ports.sink.Sink`."""
        if self._store is None:
            raise RuntimeError("the sink is not open")
        return DatabaseFollower(self._store, stream_id)


class DatabaseFollower:
    """`ports.sink.Follower`: waits for the store to call, once for any number of calls."""

    def __init__(self, store: Store, stream_id: str) -> None:
        self._woken = asyncio.Event()
        self._unsubscribe = store.subscribe(stream_id, self._woken.set)

    async def behind(self, position: int) -> Sequence[NumberedFrame]:  # noqa: ARG002
        """See `ports.sink.Follower`."""
        await self._woken.wait()
        self._woken.clear()
        return ()

    def close(self) -> None:
        """See `ports.sink.Follower`."""
        self._unsubscribe()
