"""Processes that are killed, one each second, while turns run, and a database that is restarted under them."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import httpx
import pytest

from signoff.adapters.stores.sql import SqlStore
from signoff.domain.frame import NumberedFrame
from signoff.domain.run import Run, RunStatus
from signoff.domain.thread import Message, Role
from signoff.ports.store import Tx
from tests.processes.chaos_app import DATABASE, LAST_WORDS, LEDGER, REDIS, WORKERS, Ledger
from tests.processes.customer import HEADERS, Customer
from tests.processes.fleet import Chaos, Fleet, Nursery
from tests.processes.turns import missing, withdrawn
from tests.services import Server, own_postgres, own_redis, postgres_schema

IS_FULL = os.environ.get("SIGNOFF_CHAOS") == "full"
TURNS = 200 if IS_FULL else 30
#: On the embedded engine, which is faster.
EMBEDDED_TURNS = 60
#: Turns under way at the same time.
AT_ONCE = 10
#: Real time for everything. Nothing takes this long when it is right.
PATIENCE_S = 1800.0 if IS_FULL else 300.0


# By a signal: what was started is stopped, and the logs are printed.
pytestmark = pytest.mark.timeout(PATIENCE_S + 60, method="signal")


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A PostgreSQL of the test's own."""
    with own_postgres() as server:
        yield server


@pytest.fixture
def redis() -> Iterator[Server]:
    """A Redis of the test's own."""
    with own_redis() as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    folder = tmp_path / "ledger"
    folder.mkdir()
    return Ledger(folder)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery.of("tests.processes.chaos_app") as nursery:
        yield nursery


@pytest.fixture
def fleet(nursery: Nursery, tmp_path: Path, postgres: Server, redis: Server, ledger: Ledger) -> Fleet:
    """On DBOS, PostgreSQL and Redis."""
    environment = {DATABASE: postgres.url, REDIS: redis.url, WORKERS: "dbos", LEDGER: str(ledger.folder)}
    return Fleet(nursery, tmp_path, environment)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(headers=HEADERS, timeout=60, limits=limits) as client:
        yield client


def customers(http: httpx.AsyncClient, fleet: Fleet, ledger: Ledger, count: int) -> list[Customer]:
    """As many with a key on their payment as without."""
    return [
        Customer(http, fleet.addresses, ledger, f"{('pay', 'transfer')[n % 2]} A-{n}", seed=n) for n in range(count)
    ]


async def play(everybody: Sequence[Customer], chaos: Chaos, *, at_half: Callable[[], Awaitable[None]]) -> None:
    """All turns, some at a time, while there is chaos; `at_half` is called when half of them have ended."""
    over, half = asyncio.Event(), asyncio.Event()
    room = asyncio.Semaphore(AT_ONCE)

    async def one(customer: Customer) -> None:
        async with room:
            await customer.turn()
        if sum(each.has_ended for each in everybody) >= len(everybody) // 2:
            half.set()

    async def interfere() -> None:
        await half.wait()
        await at_half()

    async def turns() -> None:
        await asyncio.gather(interfere(), *(one(customer) for customer in everybody))
        over.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(chaos.run(over))
        group.create_task(turns())
    doubts, attaches = (sum(getattr(each, name) for each in everybody) for name in ("doubts", "attaches"))
    print(f"{len(everybody)} turns, {chaos.kills} killed, {doubts} cards in doubt, {attaches} connections")
    print(f"{sum(each.came_late for each in everybody)} ended unseen")
    assert chaos.kills >= 4


@pytest.mark.postgres
@pytest.mark.redis
async def test_turns_survive_a_killed_worker_each_second_and_a_restart_of_the_database(
    fleet: Fleet, postgres: Server, ledger: Ledger, http: httpx.AsyncClient
) -> None:
    async def restart() -> None:
        # Without a word to its clients, as after a power cut; then it recovers from its log.
        await asyncio.to_thread(postgres.stop, signal.SIGQUIT)
        await asyncio.to_thread(postgres.start)

    async with asyncio.timeout(PATIENCE_S), fleet.running(webs=2, workers=3):
        everybody = customers(http, fleet, ledger, TURNS)
        await play(everybody, Chaos(fleet.workers, fleet.add_worker, seed=1), at_half=restart)

        await judge(postgres.url, ledger, everybody)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shared_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a new database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/desk.db"
        return
    with postgres_schema("chaos") as url:
        yield url


async def test_servers_that_share_a_database_are_killed_each_second(
    nursery: Nursery, shared_database: str, tmp_path: Path, ledger: Ledger, http: httpx.AsyncClient
) -> None:
    """The embedded engine: whoever lives takes over what a killed one drove."""
    fleet = Fleet(nursery, tmp_path, {DATABASE: shared_database, LEDGER: str(ledger.folder)})
    async with asyncio.timeout(PATIENCE_S), fleet.running(webs=2, workers=0):
        everybody = customers(http, fleet, ledger, EMBEDDED_TURNS)
        await play(everybody, Chaos(fleet.webs, fleet.add_web, seed=2), at_half=nothing)

        await judge(shared_database, ledger, everybody)


async def nothing() -> None:
    """No interference."""


@pytest.mark.postgres
@pytest.mark.redis
async def test_parked_runs_go_on_after_every_process_was_replaced(
    fleet: Fleet, postgres: Server, ledger: Ledger, http: httpx.AsyncClient
) -> None:
    async with asyncio.timeout(PATIENCE_S), fleet.running(webs=1, workers=1):
        everybody = customers(http, fleet, ledger, 4)
        await asyncio.gather(*(customer.ask() for customer in everybody))

        await fleet.kill_all()
        await fleet.add(webs=1, workers=1)
        for customer in everybody:
            for number in customer.cards():
                await customer.decide(number)
        await asyncio.gather(*(customer.turn() for customer in everybody))

        await judge(postgres.url, ledger, everybody)


async def judge(database: str, ledger: Ledger, everybody: Sequence[Customer]) -> None:
    """All turns have ended well, each effect happened once, and each client has the whole stream."""
    assert [customer.error for customer in everybody if customer.error] == []
    assert Counter(ledger.effects()) == Counter(customer.message.partition(" ")[2] for customer in everybody)
    store = SqlStore(database, migrate=False)
    await store.open()
    try:
        for customer in everybody:
            run_id = customer.run_id
            assert run_id is not None

            run = await store.read(partial(_run, run_id))
            assert run is not None
            assert run.status is RunStatus.COMPLETED
            stream = await store.read(partial(_frames, run_id))
            frames = {numbered.seq: numbered.frame for numbered in stream if numbered.frame["kind"] != "done"}
            seen = customer.frames
            if customer.came_late:
                # The last that it saw may be of an attempt that was lost: nobody told it, since the run had ended.
                lost = await store.read(partial(withdrawn, stream_id=run_id))
                frames = {seq: frame for seq, frame in frames.items() if seq <= max(seen, default=0)}
                seen = {seq: frame for seq, frame in seen.items() if seq not in lost}
            assert seen == frames, f"the client of {run_id} has other frames than the run"
            assert await store.read(partial(missing, stream_id=run_id)) == []
            messages = await store.read(partial(_messages, run.thread_id))
            assert [message.role for message in messages] == [Role.USER, *[Role.ASSISTANT] * 3]
            assert messages[-1].content == LAST_WORDS
    finally:
        await store.close()


def _run(run_id: str, tx: Tx) -> Run | None:
    return tx.run(run_id)


def _frames(run_id: str, tx: Tx) -> list[NumberedFrame]:
    return tx.frames(run_id, after=0, limit=10_000)


def _messages(thread_id: str, tx: Tx) -> list[Message]:
    return tx.messages_of(thread_id)
