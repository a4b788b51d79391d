"""The embedded engine: runs survive in the database of the SQL store, next to what people read."""

import logging
from datetime import datetime, timedelta

from signoff.adapters.engine.core import journal, signals, views
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Services
from signoff.adapters.engine.core.groups import Groups
from signoff.adapters.engine.core.lifecycle import Lifecycle
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.embedded import operators
from signoff.adapters.engine.embedded.dispatching import dispatch
from signoff.adapters.engine.embedded.driver import Driver
from signoff.adapters.engine.embedded.sweeper import Sweeper
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import StoreBusy
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


class EmbeddedEngine:
    """`ports.engine.Engine` without a server of its own. One event loop an engine, any number of engines a database.

    Steps are at least once and journaled once; a `record` is exactly once. With `namespace` the engine starts, sees
    and drives the runs of this namespace only; with the default it starts runs in none, and sees and drives all.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        limits: EngineLimits | None = None,
        namespace: str = "",
    ) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace
        self._drives = False
        self._bodies: dict[str, Body] = {}
        limits = limits or EngineLimits()
        owner = ids.new("worker")
        self._groups = Groups(limits.concurrency)
        self._lifecycle = Lifecycle(
            clock=clock,
            namespace=namespace,
            workflows=self._bodies,
            bytes_max=limits.entry_bytes_max,
            announce=self._announce,
            announce_cancel=self._announce_cancel,
        )
        services = Services(
            store=store,
            clock=clock,
            ids=ids,
            limits=limits,
            groups=self._groups,
            lifecycle=self._lifecycle,
            dispatch=dispatch,
        )
        self._driver = Driver(services, self._bodies, owner=owner, arm=self._arm)
        self._sweeper = Sweeper(services, self._driver, owner=owner, namespace=namespace)

    def register(self, workflow: str, body: Body) -> None:
        """See `ports.engine.Engine`."""
        self._bodies[workflow] = body

    def serve(self, group: str, handler: Handler) -> None:
        """See `ports.engine.Engine`."""
        self._groups.serve(group, handler)

    async def open(self, observer: RunObserver, *, drive: bool = True) -> None:
        """See `ports.engine.Engine`. The store must be open."""
        await self._check_tables()
        self._lifecycle.observer = observer
        self._drives = drive
        if drive:
            self._driver.open()
            self._sweeper.open()

    async def _check_tables(self) -> None:
        """Raise if they cannot be read: without them every run would be lost, so nobody may rely on this engine.

        A store that is busy is not broken: the sweeps ask again.
        """

        def look(tx: Tx) -> None:
            connection = connection_of(tx)
            views.get(connection, "", namespace=self._namespace)
            journal.load(connection, "")
            signals.untaken(connection, "")

        try:
            await self._store.read(look)
        except StoreBusy as busy:
            logger.warning("the engine starts although the store is busy: %s", busy)

    async def drain(self, timeout: timedelta = DRAIN) -> None:
        """See `ports.engine.Engine`. After `timeout` what still runs is cancelled and its run let go.

        A run that was let go is pending: the next process takes it at once, and no crash is counted. An action that
        was executing keeps its started mark, so it is in doubt then.
        """
        if self._drives:
            until = self._clock.now() + timeout
            await self._sweeper.stop_looking()
            await self._driver.drain(until)
            await self._sweeper.close()
            self._drives = False
        self._lifecycle.observer = None
        # Behind everything that was submitted without waiting: once this has committed, nothing is left to write.
        await self._store.transact("engine:drained", lambda tx: None)  # noqa: ARG005

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
        """See `ports.engine.Engine`."""
        return self._lifecycle.cancel(tx, run_id, compensate=compensate)

    def get(self, tx: Tx, run_id: str) -> EngineRun | None:
        """See `ports.engine.Engine`."""
        return views.get(connection_of(tx), run_id, namespace=self._namespace)

    def history(self, tx: Tx, run_id: str) -> list[JournalEntry]:
        """See `ports.engine.Engine`."""
        connection = connection_of(tx)
        if views.get(connection, run_id, namespace=self._namespace) is None:
            return []
        return [journal.shown(row) for row in journal.load(connection, run_id)]

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
        return views.page(
            connection_of(tx),
            status=status,
            namespace=self._namespace or namespace,
            limit=limit,
            after_id=after_id,
        )

    def retry(self, tx: Tx, run_id: str) -> bool:
        """See `ports.engine.Engine`."""
        return operators.retry(tx, run_id, lifecycle=self._lifecycle, now=self._clock.now())

    def prune(self, tx: Tx, *, before: datetime, limit: int = 1000) -> list[str]:
        """See `ports.engine.Engine`."""
        return operators.prune(tx, before=before, namespace=self._namespace, limit=limit)

    def _announce(self, run: Woken) -> None:
        self._driver.announce(run)

    def _announce_cancel(self, run_id: str) -> None:
        self._driver.cancel(run_id)

    def _arm(self, when: datetime) -> None:
        self._sweeper.arm(when)
