"""The sinks under test, each with two replicas of an application on one database."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import pytest
from redis import Redis

from signoff.adapters.sinks.database import DatabaseSink
from signoff.adapters.sinks.redis import RedisSink
from signoff.adapters.stores.memory import MemoryStore
from signoff.adapters.stores.sql import SqlStore
from signoff.ports.sink import Sink
from signoff.ports.store import Store
from tests.conformance.sink.replica import Replica
from tests.conformance.store.conftest import empty
from tests.services import postgres_schema, redis_url

#: Opens one more replica on the test's database.
NewReplica: TypeAlias = Callable[[], Awaitable[Replica]]


@pytest.fixture(scope="session")
def postgres_sink_url() -> Iterator[str]:
    with postgres_schema("sink") as url:
        yield url


@pytest.fixture
def redis_prefix(request: pytest.FixtureRequest) -> Iterator[str]:
    """A part of the shared Redis that is empty before and after."""
    prefix = f"signoff-test:{os.getpid()}:{request.node.name}:"
    with Redis.from_url(redis_url()) as redis:
        yield prefix
        for key in redis.scan_iter(match=prefix.replace("[", "\\[") + "*"):
            redis.delete(key)


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=[pytest.mark.postgres, pytest.mark.redis]),
    ]
)
async def new_replica(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewReplica]:
    """Opens replicas: of one process in memory, else as processes of their own would be."""
    memory = MemoryStore()
    database = f"sqlite:///{tmp_path}/store.db"
    prefix = ""
    if request.param in ("postgres", "redis"):
        database = request.getfixturevalue("postgres_sink_url")
    if request.param == "redis":
        prefix = request.getfixturevalue("redis_prefix")
    is_new = True

    async with AsyncExitStack() as stack:

        async def open_() -> Replica:
            nonlocal is_new
            store: Store = memory if request.param == "memory" else SqlStore(database)
            sink: Sink = DatabaseSink(shared=request.param != "memory")
            if request.param == "redis":
                sink = RedisSink(redis_url(), prefix=prefix)
            replica = await stack.enter_async_context(Replica(store, sink).running())
            if is_new and request.param in ("postgres", "redis"):
                empty(database)
            is_new = False
            return replica

        yield open_
