"""A reader of one stream over Redis, that goes to the store whenever Redis leaves something open."""

import asyncio
from collections import deque
from collections.abc import Sequence

from signoff.adapters.sinks.redis.entries import Entry
from signoff.adapters.sinks.redis.hub import RedisHub
from signoff.domain.frame import NumberedFrame
from signoff.ports.store import Store

#: How long after the store told of a commit, or the last frame came, Redis has to be silent for the store to be read.
_GRACE_S = 0.5
#: A reader this much behind reads the store when it gets there.
_INBOX_MAX = 256


class RedisFollower:
    """`ports.sink.Follower`.

    The store tells of every commit; Redis brings the frames. Only if it does not, for `_GRACE_S`, or brings others
    than the next ones, is the store read: whatever Redis loses, a reader gets.
    """

    def __init__(self, hub: RedisHub, store: Store, stream_id: str) -> None:
        self.stream_id = stream_id
        self._hub = hub
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Entry] = deque()
        self._is_too_slow = False
        self._has_place = False
        self._read_store_at: float | None = None
        self._stirred = asyncio.Event()
        hub.join(self)
        self._unsubscribe = store.subscribe(stream_id, self._hear_of_commit)

    async def behind(self, position: int) -> Sequence[NumberedFrame]:
        """See `ports.sink.Follower`."""
        if not self._has_place:
            self._has_place = True
            self._hub.read_from(self.stream_id, position)
        while not self._is_too_slow:
            while self._inbox:
                entry = self._inbox.popleft()
                if entry.last_seq <= position:
                    continue
                if entry.frames is None or entry.first_seq > position + 1:
                    return self._nothing()
                if self._read_store_at is not None:
                    self._read_store_at = self._loop.time() + _GRACE_S
                numbered = enumerate(entry.frames, entry.first_seq)
                return [NumberedFrame(seq=seq, frame=frame) for seq, frame in numbered if seq > position]
            if self._read_store_at is not None and self._loop.time() >= self._read_store_at:
                return self._nothing()
            await self._wait()
        return self._nothing()

    def close(self) -> None:
        """See `ports.sink.Follower`."""
        self._hub.leave(self)
        self._unsubscribe()

    def put(self, entry: Entry) -> None:
        """See `hub.Reader`."""
        if len(self._inbox) == _INBOX_MAX:
            self._inbox.clear()
            self._is_too_slow = True
        self._inbox.append(entry)
        self._stirred.set()

    def _hear_of_commit(self) -> None:
        if self._read_store_at is None:
            grace = _GRACE_S if self._hub.carries(self.stream_id) else 0
            self._read_store_at = self._loop.time() + grace
            self._stirred.set()

    def _nothing(self) -> Sequence[NumberedFrame]:
        """The store is read now: what it tells, and Redis brings, from here on is news again."""
        self._is_too_slow = False
        self._read_store_at = None
        return ()

    async def _wait(self) -> None:
        self._stirred.clear()
        try:
            async with asyncio.timeout_at(self._read_store_at):
                await self._stirred.wait()
        except TimeoutError:
            pass
