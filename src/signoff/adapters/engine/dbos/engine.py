"""The engine on DBOS and PostgreSQL: any number of processes, each serving the worker groups it is told to."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.engine import Connection, make_url

from signoff.adapters.engine.core import views
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Services
from signoff.adapters.engine.core.groups import CONCURRENCY, Groups
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.dbos import claims, operators, workers
from signoff.adapters.engine.dbos.dispatching import Dispatching
from signoff.adapters.engine.dbos.driving import Driver
from signoff.adapters.engine.dbos.lacks import LACKS
from signoff.adapters.engine.dbos.lifecycle import DbosLifecycle, is_task_signal
from signoff.adapters.engine.dbos.queues import RUNS, Queues, bell
from signoff.adapters.engine.dbos.runtime import Runtime
from signoff.adapters.engine.dbos.serving import Server
from signoff.adapters.engine.dbos.sweeper import DbosSweeper, Waker, put_again
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ConfigurationError
from signoff.ports.clock import Clock
from signoff.ports.engine import (
    Body,
    EngineLimits,
    EngineRun,
    EngineStatus,
    Handler,
    JournalEntry,
    RunObserver,
    SignalOutcome,
)
from signoff.ports.ids import Ids
from signoff.ports.store import Store, Tx

logger = logging.getLogger(__name__)

DRAIN = timedelta(seconds=10)

#: A worker that has not beaten for `lease` is dead, which is noticed within `sweep`: its runs go on within 10 s.
LIMITS = EngineLimits(lease=timedelta(seconds=6), sweep=timedelta(seconds=2))


class DbosEngine:
    """`ports.engine.Engine` over DBOS. Opened to drive, a process is a worker; otherwise it only starts and signals.

    DBOS queues, claims and recovers what is executed and keeps the journal; see `docs/adr/` for how. `LACKS` says
    what the port promises and this adapter does not.
    """

    def __init__(
        self,
        store: Store,
        *,
        url: str,
        clock: Clock,
        ids: Ids,
        limits: EngineLimits | None = None,
        namespace: str = "",
        groups: Collection[str] | None = None,
    ) -> None:
        """
        Args:
            store: the SQL store on `url`.
            url: the PostgreSQL database; DBOS's tables live in a schema of their own there.
            groups: the worker groups to serve when this engine drives; None: "runs", and all with a handler.

        Raises:
            ConfigurationError: `url` is not PostgreSQL.
        """
        if make_url(url).get_backend_name() != "postgresql":
            raise ConfigurationError(
                "engine='dbos' needs PostgreSQL, since its workers are many processes: use database='postgresql://…', "
                "or engine='embedded' for SQLite"
            )
        self._store = store
        self._url = url
        self._clock = clock
        self._ids = ids
        self._namespace = namespace
        self._limits = limits or LIMITS
        self._wanted = groups
        self._assigned = False
        self._owner = ids.new("worker")
        self._bodies: dict[str, Body] = {}
        self._handlers: dict[str, Handler] = {}
        self._runtime: Runtime | None = None
        self._worker: _Worker | None = None
        self._lifecycle = DbosLifecycle(
            clock=clock,
            namespace=namespace,
            workflows=self._bodies,
            bytes_max=self._limits.entry_bytes_max,
            announce=self._announce,
            announce_cancel=self._announce_cancel,
        )
        self._lifecycle.queues = lambda connection: self._connect(connection).queues
        self._waker = Waker(store, self._connect_soon)
        self._connecting = threading.Lock()

    def register(self, workflow: str, body: Body) -> None:
        """See `ports.engine.Engine`."""
        self._bodies[workflow] = body

    def serve(self, group: str, handler: Handler) -> None:
        """See `ports.engine.Engine`. Before `open`: DBOS is told then which queues it listens to."""
        self._handlers[group] = handler

    def assign(self, groups: Collection[str], *, concurrency: Mapping[str, int]) -> None:
        """Before `open`: serve these worker groups here, also if `open` is told not to drive.

        Raises:
            ConfigurationError: nothing serves such a group.
        """
        unknown = {*groups, *concurrency} - {RUNS, *self._handlers}
        if unknown:
            known = ", ".join([RUNS, *self._handlers])
            raise ConfigurationError(f"there is no worker group {sorted(unknown)[0]!r}; there are {known}")
        self._wanted = tuple(groups)
        self._assigned = True
        self._limits = replace(self._limits, concurrency={**self._limits.concurrency, **concurrency})

    async def open(self, observer: RunObserver, *, drive: bool = True) -> None:
        """See `ports.engine.Engine`. The store must be open."""
        self._lifecycle.observer = observer
        schema = await self._store.read(lambda tx: _dbos_schema(connection_of(tx)))
        await asyncio.to_thread(Runtime.migrate, self._url, schema=schema)
        await self._connect_soon()
        runtime = self._runtime
        assert runtime is not None
        if drive or self._assigned:
            self._worker = _Worker(self, runtime)
            await self._worker.open()

    async def drain(self, timeout: timedelta = DRAIN) -> None:
        """See `ports.engine.Engine`. After `timeout` what still runs is cancelled and let go.

        A run that was let go, and a step that may be repeated, are taken by other workers at once, and no crash is
        counted. An action that was executing keeps its started mark, so it is in doubt then.
        """
        if self._worker is not None:
            await self._worker.drain(timeout)
            self._worker = None
        await self._waker.close()
        if self._runtime is not None:
            await self._store.transact("engine:drained", lambda tx: None)  # noqa: ARG005
            await asyncio.to_thread(self._runtime.close)
            self._runtime = None
        self._lifecycle.observer = None

    def start(
        self,
        tx: Tx,
        *,
        run_id: str,
        workflow: str,
        input_: JsonObject,
        parent_id: str | None = None,
        namespace: str = "",
    ) -> bool:
        """See `ports.engine.Engine`."""
        return self._lifecycle.start(
            tx,
            run_id=run_id,
            workflow=workflow,
            input_=input_,
            parent_id=parent_id,
            linked=True,
            namespace=namespace,
        )

    def signal(self, tx: Tx, run_id: str, name: str, payload: Json, *, dedup_key: str) -> SignalOutcome:
        """See `ports.engine.Engine`."""
        return self._lifecycle.signal(tx, run_id, name, payload, dedup_key=dedup_key)

    def cancel(self, tx: Tx, run_id: str, *, compensate: bool = False) -> bool:
        """See `ports.engine.Engine`. A run of which a worker executes a step ends once the worker has settled it.

        Raises:
            ConfigurationError: with `compensate`; see `LACKS`.
        """
        if compensate:
            raise ConfigurationError(f"engine='dbos' has no compensating cancel: {LACKS['compensating cancel']}")
        return self._lifecycle.cancel(tx, run_id)

    def get(self, tx: Tx, run_id: str) -> EngineRun | None:
        """See `ports.engine.Engine`."""
        run = views.get(connection_of(tx), run_id, namespace=self._namespace)
        return None if run is None else _shown(run)

    def history(self, tx: Tx, run_id: str) -> list[JournalEntry]:
        """See `ports.engine.Engine`. Steps on their way are shown between the journal's entries."""
        connection = connection_of(tx)
        if views.get(connection, run_id, namespace=self._namespace) is None:
            return []
        return operators.history(self._connect(connection).client, connection, run_id)

    def runs(
        self,
        tx: Tx,
        *,
        status: EngineStatus | None = None,
        namespace: str = "",
        limit: int = 100,
        after_id: str = "",
    ) -> list[EngineRun]:
        """See `ports.engine.Engine`. An engine with a namespace lists that one, whatever is asked."""
        connection, namespace = connection_of(tx), self._namespace or namespace
        match status:
            case EngineStatus.RUNNING | EngineStatus.SUSPENDED:
                ids = claims.page(connection, status, namespace=namespace, limit=limit, after_id=after_id)
                found = [views.get(connection, run_id, namespace=namespace) for run_id in ids]
                return [_shown(run) for run in found if run is not None]
            case _:
                page = views.page(connection, status=status, namespace=namespace, limit=limit, after_id=after_id)
                return [_shown(run) for run in page]

    def retry(self, tx: Tx, run_id: str) -> bool:
        """See `ports.engine.Engine`."""
        queues = self._connect(connection_of(tx)).queues
        return operators.retry(tx, run_id, lifecycle=self._lifecycle, queues=queues, now=self._clock.now())

    def prune(self, tx: Tx, *, before: datetime, limit: int = 1000) -> list[str]:
        """See `ports.engine.Engine`."""
        queues = self._connect(connection_of(tx)).queues
        return operators.prune(tx, queues, before=before, namespace=self._namespace, limit=limit)

    async def _connect_soon(self) -> Queues:
        if self._runtime is None:
            await self._store.read(lambda tx: self._connect(connection_of(tx)))
        assert self._runtime is not None
        return self._runtime.queues

    def _connect(self, connection: Connection) -> Runtime:
        """Connect to DBOS's tables, once. Blocks: called where transactions run.

        An engine need not be open for what takes a transaction: an operator's console opens none.
        """
        with self._connecting:
            if self._runtime is None:
                self._runtime = Runtime(self._url, schema=_dbos_schema(connection), executor_id=self._owner)
            return self._runtime

    def _announce(self, run: Woken) -> None:
        self._waker.wake(run.id)

    def _announce_cancel(self, run_id: str) -> None:
        if self._worker is not None:
            self._worker.cancel(run_id)


class _Worker:
    """The part of an engine that drives: it lives from `open` to `drain`."""

    def __init__(self, engine: DbosEngine, runtime: Runtime) -> None:
        self._engine = engine
        self._runtime = runtime
        self._groups = Groups({})
        for group, handler in engine._handlers.items():
            self._groups.serve(group, handler)
        services = Services(
            store=engine._store,
            clock=engine._clock,
            ids=engine._ids,
            limits=engine._limits,
            groups=self._groups,
            lifecycle=engine._lifecycle,
            dispatch=Dispatching(runtime.queues),
        )
        self._driver = Driver(services, engine._bodies, runtime.client, owner=engine._owner, arm=self._arm)
        self._server = Server(services, engine._lifecycle, runtime.queues, arm=self._arm)
        self._sweeper = DbosSweeper(
            services,
            self._driver,
            self._server,
            engine._lifecycle,
            runtime,
            owner=engine._owner,
            namespace=engine._namespace,
        )
        self._subscriptions: list[Callable[[], None]] = []

    async def open(self) -> None:
        engine = self._engine
        concurrency = self._concurrency()
        await asyncio.to_thread(self._runtime.register_queues, concurrency, namespace=engine._namespace)
        await self._sweeper.beat()
        self._runtime.launch(
            concurrency, namespace=engine._namespace, drive=self._driver.drive, serve=self._server.serve
        )
        for queue in self._runtime.listens_to:
            self._subscriptions.append(engine._store.subscribe(bell(queue), partial(self._runtime.ring, queue)))
        self._sweeper.open()

    def cancel(self, run_id: str) -> None:
        self._driver.cancel(run_id)
        self._server.cancel(run_id)

    async def drain(self, timeout: timedelta) -> None:
        engine = self._engine
        await self._sweeper.stop_looking()
        self._driver.release()
        clock = engine._clock
        timer = clock.call_at(clock.now() + timeout, self._abort)
        try:
            await self._runtime.stop(timeout)
        finally:
            timer.cancel()
            for unsubscribe in self._subscriptions:
                unsubscribe()
        await self._sweeper.close()
        for run_id in self._driver.released:
            await put_again(engine._store, self._runtime.queues, run_id)
        await engine._store.transact("engine:leave", lambda tx: workers.leave(connection_of(tx), engine._owner))

    def _concurrency(self) -> dict[str, int]:
        engine = self._engine
        wanted = engine._wanted
        served = {RUNS, *engine._handlers} if wanted is None else set(wanted)
        missing = served - {RUNS, *engine._handlers}
        if missing:
            raise ConfigurationError(f"nobody can serve the worker groups {', '.join(sorted(missing))}: no handler")
        return {group: engine._limits.concurrency.get(group, CONCURRENCY) for group in sorted(served)}

    def _arm(self, when: datetime) -> None:
        self._sweeper.arm(when)

    def _abort(self) -> None:
        self._driver.abort()
        self._server.abort()


def _shown(run: EngineRun) -> EngineRun:
    """The run as the port tells it: one with a step under way is running, if on another worker."""
    waits = tuple(name for name in run.waits if not is_task_signal(name))
    is_executed = run.status is EngineStatus.SUSPENDED and waits != run.waits
    return replace(run, waits=waits, status=EngineStatus.RUNNING if is_executed else run.status)


def _dbos_schema(connection: Connection) -> str:
    """DBOS's tables beside ours: in "dbos", or in a schema named after ours if that is not the default one."""
    ours = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
    return "dbos" if ours == "public" else f"{ours}_dbos"
