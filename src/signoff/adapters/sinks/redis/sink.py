"""The sink on Redis: opened and closed with the application."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from signoff.adapters.sinks.redis.follower import RedisFollower
from signoff.adapters.sinks.redis.hub import RedisHub
from signoff.adapters.sinks.redis.outage import Outage
from signoff.adapters.sinks.redis.publisher import RedisPublisher
from signoff.errors import ConfigurationError
from signoff.ports.events import EventBus
from signoff.ports.store import Store

#: A Redis that has not answered for this long is away, until it answers again.
_PATIENCE_S = 2.0
_AGAIN_S = 0.5


class RedisSink:
    """`ports.sink.Sink` over Redis Streams: one stream a run, one reading and one publishing connection a process.

    Readers catch up from the store, then get frames from Redis; whatever Redis lacks, late or loses they get from
    the store. Redis may be empty, slow or away at any time, also at the start.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "signoff:",
        entries_max: int = 1000,
        ttl: timedelta = timedelta(hours=1),
    ) -> None:
        """
        Args:
            url: as ``redis://user:password@host:6379/0``, or ``rediss://…`` for TLS.
            prefix: of the keys; what follows is the run's id. In a cluster all must share a slot: ``{signoff}:``.
            entries_max: about how many writes of a run are kept.
            ttl: how long a stream is kept after its last write; those of ended runs go after a minute.

        Raises:
            ConfigurationError: not a Redis URL.
        """
        try:
            # No retries inside: whoever fails decides what to do until the next try. RESP 2 reads the same everywhere.
            self._redis: Redis = Redis.from_url(
                url,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                socket_timeout=_PATIENCE_S,
                socket_connect_timeout=_PATIENCE_S,
            )
        except ValueError as error:
            raise ConfigurationError(f"not a Redis URL: {error}") from error
        self._prefix = prefix
        self._entries_max = entries_max
        self._ttl = ttl
        self._store: Store | None = None
        self._hub: RedisHub | None = None
        self._publisher: RedisPublisher | None = None
        self._stop_carrying: Callable[[], None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, store: Store, events: EventBus) -> None:
        """See `ports.sink.Sink`."""
        self._store = store
        self._hub = RedisHub(self._redis, Outage("read", events), prefix=self._prefix)
        self._publisher = RedisPublisher(
            self._redis,
            Outage("publish", events),
            prefix=self._prefix,
            entries_max=self._entries_max,
            ttl=self._ttl,
        )
        self._stop_carrying = store.carry(self._publisher.put)
        self._tasks = [
            asyncio.create_task(self._hub.run(), name="signoff-redis-read"),
            asyncio.create_task(self._publisher.run(), name="signoff-redis-publish"),
        ]

    async def close(self) -> None:
        """See `ports.sink.Sink`."""
        if self._stop_carrying is not None:
            self._stop_carrying()
        if self._publisher is not None:
            await self._publisher.flush()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await _stop(task)
        await self._redis.aclose()

    def follow(self, stream_id: str) -> RedisFollower:
        """See `ports.sink.Sink`."""
        if self._hub is None or self._store is None:
            raise RuntimeError("the sink is not open")
        return RedisFollower(self._hub, self._store, stream_id)


async def _stop(task: "asyncio.Task[None]") -> None:
    """Cancel until it has ended: a cancel that meets a timeout of the client is taken for the timeout, and lost."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_AGAIN_S)
