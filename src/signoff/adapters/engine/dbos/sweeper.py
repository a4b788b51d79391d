"""What time does: this worker beats, dead ones are replaced, deadlines come, and lost wakes are found."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial

from dbos import WorkflowStatus

from signoff.adapters.engine.core import leases, wakeups
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Services
from signoff.adapters.engine.core.rounds import Rounds
from signoff.adapters.engine.dbos import claims, workers
from signoff.adapters.engine.dbos.claims import Stale
from signoff.adapters.engine.dbos.driving import Driver
from signoff.adapters.engine.dbos.internals import ENDED, recover
from signoff.adapters.engine.dbos.lifecycle import DbosLifecycle
from signoff.adapters.engine.dbos.queues import Queues
from signoff.adapters.engine.dbos.runtime import Runtime
from signoff.adapters.engine.dbos.serving import Server
from signoff.adapters.engine.dbos.tasks import cancelled_runs
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Store, Tx

logger = logging.getLogger(__name__)

#: When a wake is tried again whose workflow is still on its way out of memory; later the sweep finds it.
_UNWINDING_S = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


class Waker:
    """Puts runs back into DBOS's queue that were woken while DBOS had not yet heard that they parked."""

    def __init__(self, store: Store, connect: Callable[[], Awaitable[Queues]]) -> None:
        self._store = store
        self._connect = connect
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Finish what was begun."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def wake(self, run_id: str) -> None:
        """Wake one run soon. What does not come to it, the sweep of a worker finds."""
        task = asyncio.get_running_loop().create_task(self._wake(run_id), name=f"wake {run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wake(self, run_id: str) -> None:
        try:
            queues = await self._connect()
            for pause_s in _UNWINDING_S:
                await asyncio.sleep(pause_s)
                if await put_again(self._store, queues, run_id):
                    return
        except Exception:
            logger.warning("run %r could not be woken; the sweep will", run_id, exc_info=True)


async def put_again(store: Store, queues: Queues, run_id: str) -> bool:
    """Have a parked run driven on, if it shall be. False: DBOS still, or again, drives its workflow."""

    def work(tx: Tx) -> bool:
        namespace = claims.pending_in(connection_of(tx), run_id)
        return namespace is None or queues.put_again(tx, run_id, namespace=namespace)

    return await store.transact("engine:again", work)


class DbosSweeper(Rounds):
    """The periodic work of one worker; see `Rounds`."""

    def __init__(
        self,
        services: Services,
        driver: Driver,
        server: Server,
        lifecycle: DbosLifecycle,
        runtime: Runtime,
        *,
        owner: str,
        namespace: str,
    ) -> None:
        super().__init__(services.clock, services.limits)
        self._services = services
        self._driver = driver
        self._owner = owner
        self._namespace = namespace
        self._server = server
        self._dbos_lifecycle = lifecycle
        self._runtime = runtime
        self._queues = runtime.queues
        self._looked_at: datetime | None = None
        self._blind_until: datetime | None = None

    async def beat(self) -> None:
        """This worker lives."""
        now = self._services.clock.now()
        await self._services.store.transact("engine:beat", lambda tx: workers.beat(connection_of(tx), self._owner, now))

    async def _renew(self) -> None:
        await self.beat()

    async def _wake_due(self) -> None:
        services = self._services
        now = services.clock.now()

        def work(tx: Tx) -> list[datetime | None]:
            connection = connection_of(tx)
            services.lifecycle.go_on(tx, wakeups.wake_due(connection, now=now, namespace=self._namespace))
            return [wakeups.next_due(connection), self._server.enqueue_due(tx)]

        for due in await services.store.transact("engine:due", work):
            if due is not None:
                self.arm(due)

    async def _sweep(self) -> None:
        await self._take_over()
        await self._wake_due()
        await self._wake_lost()
        await self._find_stale()

    async def _wake_lost(self) -> None:
        services = self._services
        now = services.clock.now()

        def work(tx: Tx) -> None:
            woken = wakeups.wake_lost(connection_of(tx), now=now, namespace=self._namespace)
            services.lifecycle.go_on(tx, woken)

        await services.store.transact("engine:lost", work)

    async def _poll(self) -> None:
        """Hear of cancels by other processes."""
        if not self._driver.held and not self._server.run_ids:
            return

        def read(tx: Tx) -> tuple[list[str], list[str]]:
            connection = connection_of(tx)
            return leases.own_cancelling(connection, owner=self._owner), cancelled_runs(connection)

        driven, served = await self._services.store.read(read)
        for run_id in driven:
            self._driver.cancel(run_id)
        for run_id in served:
            self._server.cancel(run_id)

    async def _take_over(self) -> None:
        """Put back what dead workers had. Also what one had whose burial was all that its finder still did."""
        services = self._services
        now = services.clock.now()
        if self._can_judge(now):
            before = now - services.limits.lease
            buried = await services.store.transact(
                "engine:bury", lambda tx: workers.bury(connection_of(tx), before=before, own_id=self._owner)
            )
            if buried:
                logger.warning("workers %s are gone", ", ".join(buried))
        executing = await asyncio.to_thread(self._executing)
        if executing:
            dead = await services.store.read(lambda tx: workers.dead(connection_of(tx), executing))
            if dead:
                await asyncio.to_thread(recover, dead)
                self._runtime.ring_all()
        self._looked_at = now

    def _can_judge(self, now: datetime) -> bool:
        """Whether silence means death.

        After a while in which this worker could not look either, because the database was away or the machine slept,
        it gives all others a lease to be heard again. Then it judges for a lease at least, however seldom it looks.
        """
        lease, sweep = self._services.limits.lease, self._services.limits.sweep
        was_blind = self._looked_at is not None and now - self._looked_at > lease / 2 + sweep
        if was_blind and (self._blind_until is None or now >= self._blind_until + lease):
            self._blind_until = now + lease
        return self._blind_until is None or now >= self._blind_until

    def _executing(self) -> set[str]:
        found = self._queues.client.list_workflows(status="PENDING", load_input=False, load_output=False)
        return {workflow.executor_id for workflow in found if workflow.executor_id is not None}

    async def _find_stale(self) -> None:
        """Runs that should be driven while DBOS has no such plan: their wake, or their worker's last word, is lost."""
        services = self._services
        before: datetime = services.clock.now() - services.limits.sweep
        found = await services.store.read(lambda tx: claims.stale(connection_of(tx), before=before))
        found = [run for run in found if run.id not in self._driver.held]
        resting = await asyncio.to_thread(self._resting, [run.id for run in found])
        for run in found:
            if run.id not in resting:
                continue
            if run.status is EngineStatus.CANCELLING and run.owner is None:
                end = partial(self._dbos_lifecycle.end_cancelled, run_id=run.id)
                await services.store.transact("engine:lost", end)
            elif await services.store.transact("engine:again", partial(self._put_again, run=run)):
                logger.warning("run %r was lost (%s) and is driven again", run.id, run.status)

    def _put_again(self, tx: Tx, run: Stale) -> bool:
        return self._queues.put_again(tx, run.id, namespace=run.namespace)

    def _resting(self, run_ids: Sequence[str]) -> set[str]:
        if not run_ids:
            return set()
        found: Iterable[WorkflowStatus] = self._queues.client.list_workflows(
            workflow_ids=list(run_ids), load_input=False, load_output=False
        )
        return {workflow.workflow_id for workflow in found if workflow.status in ENDED}
