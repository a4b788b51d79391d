"""Worlds for the cases: one per runner, or a durable one where the case restarts it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Unpack

import pytest

from signoff.adapters.stores.sql.batch import CommitFaults
from signoff.testing.outside import Bank, MailServer
from signoff.testing.stores import StoreFactory, memory_stores, sql_stores
from signoff.testing.world import Options, Script, World
from tests.cases.desk import desk
from tests.services import postgres_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A way to run turns, and where its rows are."""

    durable: bool
    rows: str

    def __str__(self) -> str:
        return f"{'durable' if self.durable else 'inline'}-{self.rows}"


INLINE = [Runner(durable=False, rows="memory"), Runner(durable=False, rows="sqlite")]
DURABLE = [Runner(durable=True, rows="sqlite")]
RUNNERS = [*INLINE, *DURABLE]

#: The embedded engine lives in SQLite, so on PostgreSQL turns run inline.
POSTGRES = pytest.param(Runner(durable=False, rows="postgres"), marks=pytest.mark.postgres)

#: The file of the SQLite worlds, in the test's `tmp_path`.
DATABASE = "signoff.db"


class NewWorld(Protocol):
    """Makes and starts a world; it is closed after the test."""

    async def __call__(
        self, *tools: object, script: Script = ..., faults: CommitFaults | None = ..., **options: Unpack[Options]
    ) -> World:
        """`tools` are the desk's, unless `agents` are given; `faults` see `testing.stores`."""
        ...


@pytest.fixture(params=RUNNERS, ids=str)
def runner(request: pytest.FixtureRequest) -> Runner:
    """Each runner in turn."""
    found = request.param
    assert isinstance(found, Runner)
    return found


@pytest.fixture
def durable_runner() -> Runner:
    """The runner that survives restarts."""
    return DURABLE[0]


@pytest.fixture
async def new_world(runner: Runner, tmp_path: Path) -> AsyncIterator[NewWorld]:
    """Worlds of each runner."""
    async with AsyncExitStack() as cleanup:
        yield _maker(runner, tmp_path, cleanup)


@pytest.fixture
async def durable_world(durable_runner: Runner, tmp_path: Path) -> AsyncIterator[NewWorld]:
    """Worlds that can be killed."""
    async with AsyncExitStack() as cleanup:
        yield _maker(durable_runner, tmp_path, cleanup)


@pytest.fixture(params=[*RUNNERS, POSTGRES], ids=str)
async def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewWorld]:
    """Worlds of each runner and each database."""
    async with AsyncExitStack() as cleanup:
        yield _maker(request.param, tmp_path, cleanup)


@pytest.fixture
def bank() -> Bank:
    """The bank, which knows nothing of restarts."""
    return Bank()


@pytest.fixture
def mail() -> MailServer:
    """The mail server."""
    return MailServer()


def _maker(runner: Runner, home: Path, cleanup: AsyncExitStack) -> NewWorld:
    async def make(
        *tools: object,
        script: Script = ("Done.",),
        faults: CommitFaults | None = None,
        **options: Unpack[Options],
    ) -> World:
        options.setdefault("agents", [desk(*tools)])
        stores = _stores(runner, home, cleanup, faults)
        world = World(stores, durable="strict" if runner.durable else False, script=script, **options)
        await world.start()
        cleanup.push_async_callback(world.close)
        return world

    return make


def _stores(runner: Runner, home: Path, cleanup: AsyncExitStack, faults: CommitFaults | None) -> StoreFactory:
    match runner.rows:
        case "memory":
            return memory_stores()
        case "sqlite":
            return sql_stores(f"sqlite:///{home / DATABASE}", faults=faults)
        case _:
            return sql_stores(cleanup.enter_context(postgres_schema("cases")), faults=faults)
