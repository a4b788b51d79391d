"""What time does: leases are renewed, deadlines come, and what a crash or another process left is found."""

import logging
from datetime import datetime

from signoff.adapters.engine.core import leases, runs, wakeups
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Services
from signoff.adapters.engine.core.lifecycle import CANCELLED, dead
from signoff.adapters.engine.core.rounds import Rounds
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.embedded.driver import Driver
from signoff.errors import StoreBusy
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

#: How many pending runs are taken into line at once; the rest stays in the index.
LINE_MAX = 1000


class Sweeper(Rounds):
    """The periodic work of one engine. Everything in it may be repeated, and done by several processes."""

    def __init__(self, services: Services, driver: Driver, *, owner: str, namespace: str) -> None:
        super().__init__(services.clock, services.limits)
        self._services = services
        self._driver = driver
        self._owner = owner
        self._namespace = namespace

    async def _renew(self) -> None:
        if not self._driver.held:
            return
        lease_until = self._services.clock.now() + self._services.limits.lease

        def work(tx: Tx) -> None:
            leases.renew(connection_of(tx), owner=self._owner, lease_until=lease_until)

        await self._services.store.transact("engine:renew", work)

    async def _wake_due(self) -> None:
        services = self._services
        now = services.clock.now()

        def work(tx: Tx) -> datetime | None:
            connection = connection_of(tx)
            services.lifecycle.go_on(tx, wakeups.wake_due(connection, now=now, namespace=self._namespace))
            return wakeups.next_due(connection)

        next_due = await services.store.transact("engine:due", work)
        if next_due is not None:
            self.arm(next_due)

    async def _sweep(self) -> None:
        await self._wake_due()
        await self._wake_lost()
        now = self._services.clock.now()
        found = await self._services.store.read(
            lambda tx: leases.expired(connection_of(tx), now=now, namespace=self._namespace)
        )
        for run_id in found:
            if run_id in self._driver.held:
                continue  # this process was held up itself; the next renewal says that it lives
            try:
                await self._recover(run_id)
            except StoreBusy:
                raise
            except Exception:
                logger.exception("run %r could not be recovered; the others go on", run_id)

    async def _wake_lost(self) -> None:
        services = self._services
        now = services.clock.now()

        def work(tx: Tx) -> None:
            woken = wakeups.wake_lost(connection_of(tx), now=now, namespace=self._namespace)
            if woken:
                logger.warning("%d runs had their signal and were not woken", len(woken))
            services.lifecycle.go_on(tx, woken)

        await services.store.transact("engine:lost", work)

    async def _recover(self, run_id: str) -> None:
        """The worker of this run is gone. Count first: a run that kills whoever drives it must end somewhere."""
        services = self._services
        lifecycle = services.lifecycle
        now = services.clock.now()

        def work(tx: Tx) -> None:
            connection = connection_of(tx)
            run = runs.standing(connection, run_id)
            if run is None or (run.lease_until is not None and run.lease_until >= now):
                return
            if run.is_undone and run.lease_until is None:
                lifecycle.announce(tx, [Woken(run_id, run.workflow)])
                return
            if run.status is EngineStatus.CANCELLING and not run.is_undone:
                lifecycle.end(tx, run, CANCELLED)
                return
            crashes = leases.take_from_crashed(connection, run, now=now)
            if crashes is None:
                return
            logger.warning("the worker of run %r is gone (%d times in a row)", run_id, crashes)
            pending = runs.standing(connection, run_id)
            if crashes >= services.limits.crashes_max and pending is not None:
                lifecycle.end(tx, pending, dead(crashes))
            else:
                lifecycle.announce(tx, [Woken(run_id, run.workflow)])

        await services.store.transact("engine:recover", work)

    async def _poll(self) -> None:
        """Take pending runs into line, and hear of cancels by other processes."""
        driver = self._driver
        if driver.held:
            cancelled = await self._services.store.read(
                lambda tx: leases.own_cancelling(connection_of(tx), owner=self._owner)
            )
            for run_id in cancelled:
                driver.cancel(run_id)
        after_id = ""
        while driver.backlog < LINE_MAX:
            after = after_id
            found = await self._services.store.read(
                lambda tx, after=after: wakeups.pending(  # type: ignore[misc]
                    connection_of(tx), namespace=self._namespace, after_id=after, limit=LINE_MAX
                )
            )
            for run in found:
                driver.announce(run)
            if len(found) < LINE_MAX:
                return
            after_id = found[-1].id
