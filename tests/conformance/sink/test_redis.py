"""Redis that is away, slow, empty or wrong is nobody's error: the store has everything."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import pytest
from redis import Redis

from signoff.adapters.sinks.redis import RedisSink
from signoff.adapters.stores.sql import SqlStore
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.errors import ConfigurationError
from signoff.ports.events import EventName
from tests.conformance.sink.replica import PATIENCE_S, ReadStream, Replica
from tests.conformance.store.conftest import empty
from tests.services import Server, own_redis

T = TypeVar("T")

pytestmark = [pytest.mark.postgres, pytest.mark.redis]

KEY = "signoff:run_1"


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis of the test's own."""
    with own_redis() as server:
        yield server


@pytest.fixture
def redis(server: Server) -> Iterator["Redis"]:
    with Redis.from_url(server.url) as redis:
        yield redis


class CountingStore(SqlStore):
    """Counts the reads."""

    reads = 0

    async def read(self, work: Callable[[SqlTx], T]) -> T:
        """See `SqlStore`."""
        self.reads += 1
        return await super().read(work)


class Desks:
    """Replicas on one database and one Redis."""

    def __init__(self, database: str, server: Server) -> None:
        self.database = database
        self.server = server

    @asynccontextmanager
    async def replica(self, **options: object) -> AsyncIterator[Replica]:
        sink = RedisSink(self.server.url, **options)  # type: ignore[arg-type]
        async with Replica(CountingStore(self.database), sink).running() as replica:
            yield replica

    @asynccontextmanager
    async def two(self) -> AsyncIterator[tuple[Replica, Replica]]:
        """One that writes, and one that reads; there is a run."""
        async with self.replica() as writer, self.replica() as other:
            await writer.begin()
            yield writer, other


@pytest.fixture
async def desks(postgres_sink_url: str, server: Server) -> Desks:
    store = SqlStore(postgres_sink_url)
    await store.open()
    await store.close()
    empty(postgres_sink_url)
    return Desks(postgres_sink_url, server)


async def carries(replica: Replica) -> None:
    """Wait until what is published comes to the replica's reader by itself."""
    sink = replica.sink
    assert isinstance(sink, RedisSink)
    assert sink._hub is not None
    async with asyncio.timeout(PATIENCE_S):
        while not sink._hub.carries("run_1"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # nobody tells of it


async def expecting(replica: Replica, reader: ReadStream, count: int = 1) -> asyncio.Task[list[str]]:
    """The reader waits for its next frames, and Redis brings them."""
    taking = asyncio.create_task(reader.take(count))
    await carries(replica)
    return taking


async def test_a_crowd_reads_from_redis_and_not_from_the_database(desks: Desks, redis: "Redis") -> None:
    async with desks.two() as (writer, other):
        readers = [other.reader() for _ in range(30)]
        await writer.say("0")
        for reader in readers:
            assert await reader.take(1) == ["0"]
        following = [asyncio.create_task(reader.rest()) for reader in readers]
        await carries(other)
        assert isinstance(other.store, CountingStore)
        other.store.reads = 0

        for number in range(1, 51):
            await writer.say(f"{number}")
        await writer.end()
        await asyncio.gather(*following)

        assert [len(reader.seen) for reader in readers] == [52] * 30
        # 51 commits times 30 readers are told of; a reader whom Redis kept waiting for long may look once.
        assert other.store.reads <= 60
        assert len(redis.client_list()) <= 5  # two a replica, and the test's


async def test_redis_dies_and_comes_back_in_the_middle(desks: Desks, server: Server) -> None:
    async with desks.two() as (writer, other):
        reader = other.reader()
        following = asyncio.create_task(reader.rest())
        await writer.say("before")
        await carries(other)

        await asyncio.to_thread(server.stop, signal.SIGKILL)
        for number in range(20):
            await writer.say(f"while {number}")
        await other.tells(EventName.SINK_LOST, "read")
        await writer.tells(EventName.SINK_LOST, "publish")
        await asyncio.to_thread(server.start)
        await other.tells(EventName.SINK_RESTORED, "read")
        await writer.tells(EventName.SINK_RESTORED, "publish")
        await carries(other)
        await writer.say("after")
        await writer.end()

        assert await following == ["before", *(f"while {number}" for number in range(20)), "after", "done"]
        assert reader.numbers == list(range(1, 24))
        assert len([event for event in other.told if event.name is EventName.SINK_LOST]) == 1


async def test_redis_that_hangs_holds_up_neither_writer_nor_reader(desks: Desks, server: Server) -> None:
    async with desks.two() as (writer, other):
        reader = other.reader()
        await writer.say("before")
        assert await reader.take(1) == ["before"]
        taking = await expecting(other, reader)

        server.send(signal.SIGSTOP)
        try:
            async with asyncio.timeout(1.5):  # less than Redis is given to answer
                await writer.say("meanwhile")
                assert await taking == ["meanwhile"]
        finally:
            server.send(signal.SIGCONT)
        await writer.end()

        assert await reader.rest() == ["done"]


async def test_redis_that_is_away_from_the_start_is_warned_of_once(
    desks: Desks, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(server.stop)
    async with desks.two() as (writer, other):
        following = asyncio.create_task(other.reader().rest())
        for word in ("a", "b", "c"):
            await writer.say(word)
        await writer.tells(EventName.SINK_LOST, "publish")
        await writer.end()

        assert await following == ["a", "b", "c", "done"]
    assert caplog.text.count("Redis is away (publish") == 1


async def test_redis_that_forgets_everything_is_made_up_for(desks: Desks, redis: "Redis") -> None:
    async with desks.two() as (writer, other):
        reader = other.reader()
        for number in range(5):
            await writer.say(f"{number}")
            assert await reader.take(1) == [f"{number}"]
            redis.flushall()
        await writer.end()

        assert await reader.rest() == ["done"]


async def test_what_nobody_published_is_read_from_the_database(desks: Desks) -> None:
    """As when a worker dies between its commit and Redis, or an operator's command has no Redis at all."""
    async with desks.two() as (writer, other):
        reader = other.reader()
        await writer.say("a")
        assert await reader.take(1) == ["a"]
        taking = await expecting(other, reader)

        silent = SqlStore(desks.database)
        await silent.open()
        elsewhere = Replica(silent, writer.sink)
        await elsewhere.say("b")
        assert await taking == ["b"]
        await elsewhere.say("c")
        await writer.say("d")
        assert await reader.take(2) == ["c", "d"]
        await silent.close()


async def test_streams_are_trimmed_and_expire(desks: Desks, redis: "Redis") -> None:
    async with desks.replica(entries_max=10, ttl=timedelta(minutes=5)) as writer:
        await writer.begin()
        for number in range(500):
            await writer.say(f"{number}")
        reader = writer.reader()
        assert len(await reader.take(500)) == 500

        assert 10 <= redis.xlen(KEY) < 300  # Redis trims whole nodes of 100
        assert 60 < int(redis.ttl(KEY)) <= 300
        await writer.end()
        await reader.rest()
    assert 0 < int(redis.ttl(KEY)) <= 60


async def test_large_frames_go_past_redis(desks: Desks, redis: "Redis") -> None:
    async with desks.two() as (writer, other):
        reader = other.reader()
        await writer.say("small")
        assert await reader.take(1) == ["small"]
        taking = await expecting(other, reader)

        await writer.say("x" * 200_000)
        assert await taking == ["x" * 200_000]

    assert (redis.memory_usage(KEY) or 0) < 100_000


async def test_what_others_put_there_harms_no_reader(desks: Desks, redis: "Redis") -> None:
    async with desks.two() as (writer, other):
        reader = other.reader()
        await writer.say("a")
        assert await reader.take(1) == ["a"]
        taking = await expecting(other, reader, 2)

        redis.xadd(KEY, {"first": "2", "frames": "[broken"}, id="2-0")
        redis.xadd(KEY, {"nothing": "known"}, id="3-0")
        redis.xadd(KEY, {"first": "4", "frames": '["not a frame"]'}, id="4-0")
        await writer.say("b")
        await writer.end()

        assert await taking == ["b", "done"]


def test_a_wrong_url_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="not a Redis URL"):
        RedisSink("http://127.0.0.1:6379")
