"""One process of an application, as far as streams are concerned."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Self

from signoff.adapters.system import SystemClock
from signoff.domain.frame import NumberedFrame, done, text
from signoff.domain.run import RunStatus
from signoff.ports.events import Event, EventName
from signoff.ports.sink import Sink
from signoff.ports.store import Store, Tx
from signoff.service.stream import follow
from signoff.turn.events import Events
from tests.conformance.store.rows import a_run, a_thread, at

#: Real time after which a test gives up that waits for a frame. Nothing waits this long when it is right.
PATIENCE_S = 30.0

RUN = a_run("run_1", thread_id="thread_1")


class Replica:
    """A store and a sink, and what is done with them."""

    def __init__(self, store: Store, sink: Sink) -> None:
        self.store = store
        self.sink = sink
        self.told: list[Event] = []
        self._news = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        await self.store.open()
        await self.sink.open(self.store, Events(SystemClock(), [self._hear]))
        try:
            yield self
        finally:
            await self.sink.close()
            await self.store.close()

    async def tells(self, name: EventName, side: str) -> None:
        """Wait until the sink has told of this, from that side."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(event.name is name and event.data["side"] == side for event in self.told):
                self._news.clear()
                await self._news.wait()

    def _hear(self, event: Event) -> None:
        self.told.append(event)
        self._news.set()

    async def begin(self) -> None:
        """The run whose stream is read."""

        def work(tx: Tx) -> None:
            tx.insert_thread(a_thread("thread_1"))
            tx.insert_run(RUN)

        await self.store.transact("begin", work)

    async def say(self, *words: str) -> int:
        """Commit these words as one emission; returns the last one's number."""
        return await self.store.transact("say", lambda tx: tx.emit(RUN.stream_id, [text(word) for word in words]))

    async def withdraw(self, from_seq: int) -> None:
        await self.store.transact("withdraw", lambda tx: tx.withdraw(RUN.stream_id, from_seq=from_seq))

    async def end(self) -> None:
        """The run has completed."""

        def work(tx: Tx) -> None:
            tx.settle_run(RUN.id, status=RunStatus.COMPLETED, ended_at=at(9))
            tx.emit(RUN.stream_id, [done()])

        await self.store.transact("end", work)

    def reader(self, *, after: int = 0) -> "ReadStream":
        """Somebody attaches here."""
        return ReadStream(self, after)


class ReadStream:
    """A reader, and what it has seen."""

    def __init__(self, replica: Replica, after: int) -> None:
        self._frames = follow(replica.store, replica.sink, RUN, after=after)
        self.seen: list[NumberedFrame] = []

    async def take(self, count: int) -> list[str]:
        """The next frames' words."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(count):
                self.seen.append(await anext(self._frames))
        return words(self.seen[-count:])

    async def rest(self) -> list[str]:
        """All further words, up to the stream's end."""
        async with asyncio.timeout(PATIENCE_S), aclosing(self._frames):
            before = len(self.seen)
            async for numbered in self._frames:
                self.seen.append(numbered)
        return words(self.seen[before:])

    async def leave(self) -> None:
        await self._frames.aclose()

    @property
    def numbers(self) -> list[int]:
        return [numbered.seq for numbered in self.seen]


def words(frames: Sequence[NumberedFrame]) -> list[str]:
    """What the frames say; "done" for the end."""
    return [str(numbered.frame.get("text", numbered.frame["kind"])) for numbered in frames]
