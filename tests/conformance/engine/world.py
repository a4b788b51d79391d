"""A small world for engine contracts: a database file, a clock the test owns, and workers that can die.

A contract sees `EngineWorld` and `Worker` only; each engine brings its own `EngineWorld`.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy import text

from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.embedded import EmbeddedEngine
from signoff.adapters.stores.sql import SqlStore
from signoff.domain.audit import AuditKind
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import (
    Body,
    Engine,
    EngineLimits,
    EngineRun,
    EngineStatus,
    Handler,
    JournalEntry,
    Retry,
    SignalOutcome,
    Task,
    TaskInfo,
)
from signoff.ports.store import Store, Tx
from signoff.testing.clock import START, FakeClock, FakeIds

T = TypeVar("T")

#: Real time after which a test that waits for an event gives up. Nothing waits this long when it is right.
PATIENCE_S = 60.0

ONCE = Retry(attempts=1, repeatable=False)
READ = Retry(attempts=1, repeatable=True)
TOOL = Task(group="tools", input={})


def note(tx: Tx, text: str) -> None:
    """A row of people's side, written where a body's `record` writes its rows."""
    tx.append_audit(
        tenant="notes",
        at=START,
        kind=AuditKind.REQUESTED,
        run_id=None,
        call_id=None,
        actor_id=None,
        data={"text": text},
    )


def writing(text: str, value: Json = None) -> Callable[[Tx, object], Json]:
    """A `write` that notes `text` and returns `value`."""

    def write(tx: Tx, _computed: object) -> Json:
        note(tx, text)
        return value

    return write


async def nothing() -> None:
    """A `compute` that has nothing to compute."""


@dataclass
class Observer:
    """Remembers what the engine told it, once it was committed."""

    ends: list[tuple[str, EngineStatus, str]] = field(default_factory=list)
    errors: list[BaseException | None] = field(default_factory=list)
    parks: list[tuple[str, bool]] = field(default_factory=list)

    def ended(self, tx: Tx, run_id: str, status: EngineStatus, error: BaseException | None, error_text: str) -> None:
        note(tx, f"ended {run_id} {status}")

        def remember() -> None:
            self.ends.append((run_id, status, error_text))
            self.errors.append(error)

        tx.on_commit(remember)

    def parked(self, tx: Tx, run_id: str, parked: bool) -> None:
        tx.on_commit(lambda: self.parks.append((run_id, parked)))


@dataclass
class Tool:
    """A handler that counts, and can be held."""

    result: Callable[[JsonObject, TaskInfo], Json] = lambda task, info: {"done": info.name}
    calls: list[TaskInfo] = field(default_factory=list)
    held: asyncio.Event | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    finished: int = 0

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        self.calls.append(info)
        self.started.set()
        if self.held is not None:
            await self.held.wait()
        value = self.result(task, info)
        self.finished += 1
        return value

    @property
    def names(self) -> list[str]:
        return [info.name for info in self.calls]


class Worker(ABC):
    """One process as far as the engine can tell: an engine over its own handle of the database."""

    store: Store
    engine: Engine
    observer: Observer

    @abstractmethod
    async def crash(self) -> None:
        """Die: nothing is written any more, nothing is cleaned up in the database."""

    @abstractmethod
    async def close(self) -> None:
        """Drain, and close the store. Nothing after a crash."""

    async def transact(self, work: Callable[[Tx], T]) -> T:
        return await self.store.transact("test", work)

    async def start(
        self, run_id: str = "run", workflow: str = "flow", input_: JsonObject | None = None, namespace: str = ""
    ) -> bool:
        return await self.transact(
            lambda tx: self.engine.start(tx, run_id=run_id, workflow=workflow, input_=input_ or {}, namespace=namespace)
        )

    async def start_many(self, run_ids: Sequence[str], workflow: str = "flow") -> None:
        """In one transaction."""

        def start(tx: Tx) -> None:
            for run_id in run_ids:
                self.engine.start(tx, run_id=run_id, workflow=workflow, input_={})

        await self.transact(start)

    async def signal(self, name: str, payload: Json = None, *, run_id: str = "run", key: str = "") -> SignalOutcome:
        return await self.transact(lambda tx: self.engine.signal(tx, run_id, name, payload, dedup_key=key or name))

    async def cancel(self, run_id: str = "run", *, compensate: bool = False) -> bool:
        return await self.transact(lambda tx: self.engine.cancel(tx, run_id, compensate=compensate))

    async def retry(self, run_id: str = "run") -> bool:
        return await self.transact(lambda tx: self.engine.retry(tx, run_id))


class EngineWorld(ABC):
    """What survives the workers."""

    clock: FakeClock
    workers: list[Worker]

    @abstractmethod
    async def died(self, worker: Worker) -> None:
        """Return once a worker that `dies` by itself has died, and what ran in it runs no more."""

    @abstractmethod
    async def expire(self, run_id: str) -> None:
        """End the lease of whoever drives the run, as if its process had been paused for as long."""

    @abstractmethod
    async def quiet(self, worker: Worker) -> None:
        """Return once the worker has no run in memory."""

    @abstractmethod
    async def commits(self, worker: Worker) -> int:
        """How many transactions the worker has committed."""

    @abstractmethod
    async def flushed(self, worker: Worker) -> None:
        """Return once what the worker has submitted without waiting is committed."""

    @abstractmethod
    async def worker(
        self,
        *,
        bodies: Mapping[str, Body] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        limits: EngineLimits | None = None,
        namespace: str = "",
        opened: bool = True,
        dies: "Dies | None" = None,
    ) -> Worker:
        """A new worker; `dies` says at which commit it crashes by itself."""

    @abstractmethod
    async def look(self, read: Callable[[Engine, Tx], T]) -> T:
        """Read what is committed, through an engine that drives nothing."""

    @abstractmethod
    async def settled(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Return once `condition` holds; it is looked at after each commit."""

    @abstractmethod
    async def change_journal(self, run_id: str, position: int, body: str) -> None:
        """Overwrite what is stored at a position with `body`, as a broken disk or an attacker would."""

    async def run(self, run_id: str = "run") -> EngineRun:
        run = await self.look(lambda engine, tx: engine.get(tx, run_id))
        assert run is not None, f"there is no run {run_id!r}"
        return run

    async def history(self, run_id: str = "run") -> list[JournalEntry]:
        return await self.look(lambda engine, tx: engine.history(tx, run_id))

    async def names(self, run_id: str = "run") -> list[tuple[int, str, str]]:
        """Position, kind and name of each entry."""
        return [(entry.position, entry.kind, entry.name) for entry in await self.history(run_id)]

    async def notes(self) -> list[str]:
        """What `note` wrote, in order."""
        rows = await self.look(lambda _, tx: tx.audit(tenant="notes"))
        return [str(row.data["text"]) for row in rows]

    async def until(self, status: EngineStatus, run_id: str = "run") -> EngineRun:
        """Wait for a status; a run that ended otherwise fails the test at once."""

        async def reached() -> bool:
            run = await self.look(lambda engine, tx: engine.get(tx, run_id))
            if run is not None and run.status.is_terminal and run.status is not status:
                raise AssertionError(f"run {run_id!r} is {run.status}: {run.error_type}: {run.error}")
            return run is not None and run.status is status

        await self.settled(reached)
        return await self.run(run_id)

    async def output(self, run_id: str = "run") -> Json:
        """Wait for the run's end; its output."""
        return (await self.until(EngineStatus.COMPLETED, run_id)).output

    async def failed(self, run_id: str = "run") -> EngineRun:
        return await self.until(EngineStatus.FAILED, run_id)

    async def parked(self, run_id: str = "run") -> EngineRun:
        return await self.until(EngineStatus.SUSPENDED, run_id)

    async def is_retrying(self, attempt: int, run_id: str = "run") -> bool:
        return any(entry.state == "retrying" and entry.attempt == attempt for entry in await self.history(run_id))

    async def waits_for(self, *names: str, run_id: str = "run") -> bool:
        """Whether the run waits for these signals, parked or about to park."""
        return (await self.run(run_id)).waits == names

    async def parked_on(self, *names: str, run_id: str = "run") -> EngineRun:
        """Wait until the run is parked on exactly these signals."""

        async def reached() -> bool:
            run = await self.run(run_id)
            return run.status is EngineStatus.SUSPENDED and run.waits == names

        await self.settled(reached)
        return await self.run(run_id)

    async def count(self, status: EngineStatus, number: int) -> bool:
        """Whether exactly so many runs have this status."""
        return len(await self.look(lambda engine, tx: engine.runs(tx, status=status, limit=number + 1))) == number

    async def past_lease(self) -> None:
        """Time enough for a dead worker's lease to end and for a sweep to see it."""
        await self.pass_time(EngineLimits().lease + 2 * EngineLimits().sweep)

    async def pass_time(self, by: timedelta, step: timedelta = timedelta(seconds=1)) -> None:
        """Move the clock in steps, letting what each step wakes begin."""
        while by > timedelta(0):
            self.clock.advance(min(step, by))
            by -= step
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dies:
    """Crash before or after the `nth` commit that holds a transaction with this label, or of all (``"*"``)."""

    label: str
    after: bool = False
    nth: int = 1

    def matches(self, labels: Sequence[str]) -> bool:
        return self.label == "*" or self.label in labels


class _Killed(Exception):
    pass


class _Faults:
    """Kills a store on demand, and tells the world of each commit."""

    def __init__(self, told: Callable[[], None], dies: Dies | None) -> None:
        self._told = told
        self._dies = dies
        self._seen = 0
        self.commits = 0
        self.dead = False
        self.died = threading.Event()

    async def is_over(self) -> bool:
        """Whether the process has died; one that is at it has, once this returns."""
        if self.dead:
            # What it committed is seen before it has died.
            assert await asyncio.to_thread(self.died.wait, PATIENCE_S), "the worker lives"
        return self.died.is_set()

    def spare(self) -> None:
        """The test is over: what has lived until now may end in peace."""
        self._dies = None

    def before_commit(self, labels: Sequence[str]) -> None:
        if self._dies is not None and self._dies.matches(labels):
            self._seen += 1
            if self._seen == self._dies.nth:
                self.dead = True
                if not self._dies.after:
                    self._die()
        if self.dead and self._dies is None:
            self._die()

    def after_commit(self, labels: Sequence[str]) -> None:
        self.commits += 1
        self._told()
        if self.dead:
            self._die()

    def _die(self) -> None:
        self.dead = True
        self.died.set()
        self._told()
        raise _Killed


class EmbeddedWorker(Worker):
    """A worker of the embedded engine."""

    def __init__(self, store: SqlStore, engine: EmbeddedEngine, faults: _Faults) -> None:
        self.store = store
        self.engine = engine
        self.embedded = engine
        self.observer = Observer()
        self.faults = faults
        self.crashed = self.closed = False

    async def crash(self) -> None:
        self.crashed = True
        if not self.faults.died.is_set():
            self.faults.spare()
            self.faults.dead = True
            # Nobody answers this one any more.
            last_breath = asyncio.ensure_future(self.store.transact("crash", lambda tx: note(tx, "crash")))
            await asyncio.to_thread(self.faults.died.wait)
            last_breath.cancel()
        await self.bury()

    async def bury(self) -> None:
        """What ran in the dead process runs no more."""
        driver, sweeper = self.embedded._driver, self.embedded._sweeper
        await sweeper.close()
        for execution in driver.held.values():
            execution.abort()
        tasks = set(driver._tasks)
        for _ in range(3):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.crashed:
            await self.store.close()
            return
        if await self.faults.is_over():
            await self.bury()
        elif self.embedded._lifecycle.observer is not None:
            self.faults.spare()
            await self.embedded.drain(timedelta(0))
        await self.store.close()


class EmbeddedWorld(EngineWorld):
    """The embedded engine on a SQLite file."""

    def __init__(self, url: str) -> None:
        self.clock = FakeClock()
        self.ids = FakeIds()
        self.url = url
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Event] = set()
        self.workers: list[Worker] = []

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator["EmbeddedWorld"]:
        world = cls(url)
        world._window = await world.worker(opened=False)
        try:
            yield world
        finally:
            for worker in reversed(world.workers):
                await worker.close()

    async def worker(
        self,
        *,
        bodies: Mapping[str, Body] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        limits: EngineLimits | None = None,
        namespace: str = "",
        opened: bool = True,
        dies: Dies | None = None,
    ) -> EmbeddedWorker:
        faults = _Faults(self._told, dies)
        store = SqlStore(self.url, faults=faults)
        await store.open()
        engine = EmbeddedEngine(store, clock=self.clock, ids=self.ids, limits=limits, namespace=namespace)
        worker = EmbeddedWorker(store, engine, faults)
        for workflow, body in (bodies or {}).items():
            engine.register(workflow, body)
        for group, handler in (handlers or {}).items():
            engine.serve(group, handler)
        self.workers.append(worker)
        if opened:
            await engine.open(worker.observer)
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
        assert isinstance(worker, EmbeddedWorker)
        await asyncio.wait_for(asyncio.to_thread(worker.faults.died.wait, PATIENCE_S), PATIENCE_S)
        assert worker.faults.died.is_set(), "the worker lives"
        await worker.crash()

    async def flushed(self, worker: Worker) -> None:
        await worker.transact(lambda tx: None)

    async def expire(self, run_id: str) -> None:
        await self._execute("UPDATE engine_runs SET lease_until = 0 WHERE id = :id", id=run_id)

    async def quiet(self, worker: Worker) -> None:
        assert isinstance(worker, EmbeddedWorker)
        async with asyncio.timeout(PATIENCE_S):
            while tasks := set(worker.embedded._driver._tasks):
                await asyncio.wait(tasks)

    async def commits(self, worker: Worker) -> int:
        assert isinstance(worker, EmbeddedWorker)
        return worker.faults.commits

    async def change_journal(self, run_id: str, position: int, body: str) -> None:
        statement = "UPDATE checkpoints SET body = :body WHERE run_id = :id AND position = :position"
        await self._execute(statement, body=body, id=run_id, position=position)

    async def _execute(self, statement: str, **values: object) -> None:
        await self._window.transact(lambda tx: connection_of(tx).execute(text(statement), values).rowcount)

    def _told(self) -> None:
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for event in self._waiting:
            event.set()

    _window: EmbeddedWorker


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'engine.db'}"
