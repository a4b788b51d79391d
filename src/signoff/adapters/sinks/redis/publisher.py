"""What this process commits goes to Redis, in order, behind the commits and off their way."""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from signoff.adapters.sinks.redis.entries import entry_id, fields_of
from signoff.adapters.sinks.redis.outage import TROUBLE, Outage
from signoff.domain.frame import DONE, ERROR
from signoff.ports.store import Emission

_BATCH_MAX = 200
#: While Redis is away the oldest are dropped from here on; their readers have the store.
_QUEUE_MAX = 10_000
#: An ended stream is not attached to any more: this is for readers that are a little behind.
_ENDED_TTL = timedelta(minutes=1)
_LAST_WORDS = timedelta(seconds=2)


class RedisPublisher:
    """Adds entries to the streams of runs. At least once while this process lives; readers ignore what they have."""

    def __init__(self, redis: "Redis", outage: Outage, *, prefix: str, entries_max: int, ttl: timedelta) -> None:
        self._redis = redis
        self._outage = outage
        self._prefix = prefix
        self._entries_max = entries_max
        self._ttl = ttl
        self._queue: deque[Emission] = deque(maxlen=_QUEUE_MAX)
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, emitted: Sequence[Emission]) -> None:
        """Publish these, soon."""
        self._queue.extend(emitted)
        self._filled.set()
        self._emptied.clear()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._filled.wait()
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), _BATCH_MAX))]
            await self._insist(batch)
            if not self._queue:
                self._filled.clear()
                self._emptied.set()

    async def flush(self) -> None:
        """Wait until all that was put is published, but not for long."""
        try:
            async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                await self._emptied.wait()
        except TimeoutError:
            pass

    async def _insist(self, batch: Sequence[Emission]) -> None:
        while True:
            try:
                await self._send(batch)
            except TROUBLE as error:
                await asyncio.sleep(self._outage.begin(error))
            else:
                self._outage.end()
                return

    async def _send(self, batch: Sequence[Emission]) -> None:
        ttls: dict[str, timedelta] = {}
        pipeline = self._redis.pipeline(transaction=False)
        for emission in batch:
            key = self._prefix + emission.stream_id
            pipeline.xadd(
                key,
                fields_of(emission),  # type: ignore[arg-type]  # redis-py's dict is invariant
                id=entry_id(emission.last_seq),
                maxlen=self._entries_max,
            )
            ttls[key] = _ENDED_TTL if _is_over(emission) else self._ttl
        for key, ttl in ttls.items():
            pipeline.pexpire(key, ttl)
        for answer in await pipeline.execute(raise_on_error=False):
            if isinstance(answer, Exception) and not _is_late(answer):
                raise answer


def _is_over(emission: Emission) -> bool:
    return emission.frames is not None and any(frame["kind"] in (DONE, ERROR) for frame in emission.frames)


def _is_late(error: Exception) -> bool:
    """Whether a later number is there already: published before, or by another process that was faster."""
    return isinstance(error, ResponseError) and "equal or smaller" in str(error)
