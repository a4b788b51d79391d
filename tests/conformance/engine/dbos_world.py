"""The world of the engine contract, over DBOS on PostgreSQL: a database a test, workers one after the other."""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import TypeVar

import psycopg
import pytest
from dbos import DBOS
from psycopg.sql import SQL, Identifier
from sqlalchemy import MetaData, create_engine
from sqlalchemy.engine import make_url

from signoff.adapters.engine.dbos import LACKS, DbosEngine, internals
from signoff.adapters.engine.dbos.runtime import Runtime
from signoff.adapters.stores.sql import SqlStore
from signoff.ports.engine import Body, Engine, EngineLimits, Handler
from signoff.ports.store import Tx
from signoff.testing.clock import FakeClock, FakeIds
from tests.conformance.engine.world import (
    PATIENCE_S,
    Dies,
    EngineWorld,
    Observer,
    Worker,
    _Faults,
    note,
)
from tests.services import postgres_url

T = TypeVar("T")

#: Time for a server process to end whose client is gone.
_LEAVING_S = 5.0

_numbers = itertools.count(1)


@contextlib.contextmanager
def database(template: str | None = None) -> Iterator[str]:
    """URL of a PostgreSQL database of its own, a copy of `template` (a URL) if there is one; dropped at the end."""
    server = postgres_url()
    name = f"signoff_dbos_{os.getpid()}_{next(_numbers)}"
    source = make_url(template).database if template else None
    create = SQL("CREATE DATABASE {}").format(Identifier(name))
    if source is not None:
        create = SQL("{} TEMPLATE {}").format(create, Identifier(source))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create)
        # No test lets the server crash, so none needs its commits on the disk.
        connection.execute(SQL("ALTER DATABASE {} SET synchronous_commit = off").format(Identifier(name)))
        try:
            yield make_url(server).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


async def prepare(url: str) -> None:
    """Create all tables, so that copies need no migration."""
    store = SqlStore(url)
    await store.open()
    engine = DbosEngine(store, url=url, clock=FakeClock(), ids=FakeIds())
    await engine.open(Observer(), drive=False)
    await engine.drain()
    await store.close()


def empty(url: str) -> None:
    """Delete every row, which is faster than another database; fails if somebody is still connected."""
    with psycopg.connect(url) as connection:
        left = _connections(connection)
        give_up_at = time.monotonic() + _LEAVING_S
        while left and time.monotonic() < give_up_at:
            time.sleep(0.01)  # another program's end can only be polled
            left = _connections(connection)
        connection.execute("SELECT pg_terminate_backend(pid, 1000) FROM unnest(%s::int[]) AS pid", [list(left)])
        connection.execute(_deletions(url).encode())
    assert not left, f"left behind: {left}"


def _connections(connection: psycopg.Connection) -> dict[int, str]:
    """The last statement of each other client of the database."""
    with connection.transaction():
        found = connection.execute(
            "SELECT pid, query FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return dict(found.fetchall())


@cache
def _deletions(url: str) -> str:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    tables = MetaData()
    for schema in ("public", "dbos"):
        tables.reflect(engine, schema=schema)
    engine.dispose()
    return "; ".join(
        f'DELETE FROM "{table.schema}"."{table.name}"'
        for table in reversed(tables.sorted_tables)
        if table.name not in ("signoff_schema", "dbos_migrations")
    )


class DbosWorker(Worker):
    """A worker of the DBOS engine."""

    def __init__(self, world: "DbosWorld", store: SqlStore, engine: DbosEngine, faults: _Faults) -> None:
        self.world = world
        self.store = store
        self.engine = engine
        self.dbos = engine
        self.observer = Observer()
        self.faults = faults
        self.gone = False

    async def crash(self) -> None:
        if not self.faults.died.is_set():
            self.faults._dies = None
            self.faults.dead = True
            # Nobody answers this one any more.
            last_breath = asyncio.ensure_future(self.store.transact("crash", lambda tx: note(tx, "crash")))
            await asyncio.to_thread(self.faults.died.wait)
            last_breath.cancel()
        await self.bury()

    async def bury(self) -> None:
        """What ran in the dead process runs no more, and DBOS hears nothing of it."""
        if self.gone:
            return
        self.gone = True
        runtime = self.dbos._runtime
        if self.world.living is self:
            self.world.living = None
            assert runtime is not None
            await self._stop(runtime)
        if runtime is not None:
            await asyncio.to_thread(runtime.close)

    async def _stop(self, runtime: Runtime) -> None:
        worker, instance = self.dbos._worker, runtime._launched
        assert worker is not None
        assert instance is not None
        await worker._sweeper.close()
        await asyncio.to_thread(internals._stop_queues, instance, PATIENCE_S)
        worker._abort()
        async with asyncio.timeout(PATIENCE_S):
            # Again and again: who is told to stop may have last words to write, and a dead store does not answer.
            while executions := set(instance._workflow_tasks):
                for execution in executions:
                    execution.cancel()
                await asyncio.sleep(0)
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)

    async def close(self) -> None:
        try:
            if await self.faults.is_over():
                await self.bury()
            elif not self.gone:
                self.gone = True
                await self.dbos.drain(timedelta(0))
                if self.world.living is self:
                    self.world.living = None
        finally:
            await self.store.close()


class DbosWorld(EngineWorld):
    """DBOS on a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.ids = FakeIds()
        self.url = url
        self.workers: list[Worker] = []
        self.living: DbosWorker | None = None
        self._ends = AsyncExitStack()
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Event] = set()

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator["DbosWorld"]:
        world = cls(url)
        async with world._ends:
            # Threads of DBOS that were left in the middle of a query would try it again for ever without the database.
            world._ends.push_async_callback(asyncio.get_running_loop().shutdown_default_executor)
            # A worker that cannot be closed fails its test, and no other.
            world._ends.push_async_callback(asyncio.to_thread, DBOS.destroy, destroy_registry=True)
            world._window = await world.worker(opened=False)
            yield world

    async def worker(
        self,
        *,
        bodies: Mapping[str, Body] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        limits: EngineLimits | None = None,
        namespace: str = "",
        opened: bool = True,
        dies: Dies | None = None,
    ) -> DbosWorker:
        if opened and self.living is not None:
            if await self.living.faults.is_over():
                await self.living.bury()
            elif self.living.dbos._worker is not None:
                pytest.xfail(LACKS["two workers in one process"])
        faults = _Faults(self._told, dies)
        store = SqlStore(self.url, faults=faults, migrate=False)
        await store.open()
        engine = DbosEngine(
            store, url=self.url, clock=self.clock, ids=self.ids, limits=limits or EngineLimits(), namespace=namespace
        )
        worker = DbosWorker(self, store, engine, faults)
        for workflow, body in (bodies or {}).items():
            engine.register(workflow, body)
        for group, handler in (handlers or {}).items():
            engine.serve(group, handler)
        self.workers.append(worker)
        self._ends.push_async_callback(worker.close)
        if opened:
            await engine.open(worker.observer)
            self.living = worker
        return worker

    async def look(self, read: Callable[[Engine, Tx], T]) -> T:
        return await self._window.store.read(lambda tx: read(self._window.engine, tx))

    async def settled(self, condition: Callable[[], Awaitable[bool]]) -> None:
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    changed.clear()
                    if await condition():
                        return
                    await changed.wait()
        finally:
            self._waiting.discard(changed)

    async def died(self, worker: Worker) -> None:
        assert isinstance(worker, DbosWorker)
        await asyncio.wait_for(asyncio.to_thread(worker.faults.died.wait, PATIENCE_S), PATIENCE_S)
        assert worker.faults.died.is_set(), "the worker lives"
        await worker.crash()

    async def expire(self, run_id: str) -> None:
        """DBOS hands the run out again, as it does once its worker is taken for dead."""
        owner = (await self.run(run_id)).owner
        assert owner is not None, f"nobody drives {run_id!r}"
        await asyncio.to_thread(internals.recover, [owner])

    async def quiet(self, worker: Worker) -> None:
        assert isinstance(worker, DbosWorker)
        driving = worker.dbos._worker
        assert driving is not None

        async def is_quiet() -> bool:
            return not driving._driver.held

        await self.settled(is_quiet)

    async def commits(self, worker: Worker) -> int:
        assert isinstance(worker, DbosWorker)
        return worker.faults.commits

    async def flushed(self, worker: Worker) -> None:
        await worker.transact(lambda tx: None)

    async def change_journal(self, run_id: str, position: int, body: str) -> None:
        def work(tx: Tx) -> None:
            tx.connection.exec_driver_sql(  # type: ignore[attr-defined]
                "UPDATE dbos.operation_outputs SET output = %s WHERE workflow_uuid = %s AND function_id = %s",
                (body, run_id, position),
            )

        await self._window.transact(work)

    def _told(self) -> None:
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for event in self._waiting:
            event.set()

    _window: DbosWorker
