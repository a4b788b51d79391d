"""What time does: leases are renewed, deadlines come, and what a crash or another process left is found."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta

from signoff.adapters.engine.embedded import runs
from signoff.adapters.engine.embedded.connection import connection_of
from signoff.adapters.engine.embedded.driver import Driver
from signoff.adapters.engine.embedded.execution import Services
from signoff.adapters.engine.embedded.lifecycle import CANCELLED, dead
from signoff.adapters.engine.embedded.runs import Woken
from signoff.errors import StoreBusy
from signoff.ports.clock import Timer
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

#: How soon another process' start, signal or cancel is noticed. One read of an index each time.
POLL = timedelta(seconds=1)
#: How soon what a busy store refused is tried again.
AGAIN = timedelta(seconds=1)
#: How many pending runs are taken into line at once; the rest stays in the index.
LINE_MAX = 1000


class Sweeper:
    """The periodic work of one engine. Everything in it may be repeated, and done by several processes."""

    def __init__(self, services: Services, driver: Driver, *, owner: str, namespace: str) -> None:
        self._services = services
        self._driver = driver
        self._owner = owner
        self._namespace = namespace
        self._renewing: asyncio.Task[None] | None = None
        self._looking: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._due_at: datetime | None = None
        self._open = False

    def open(self) -> None:
        """Begin; the first look is at once, but not awaited here."""
        self._open = True
        limits = self._services.limits
        self._renewing = asyncio.create_task(self._every(limits.lease / 2, self._renew, at_once=False))
        self._look(self._every(limits.sweep, self._sweep, at_once=True))
        self._look(self._every(min(POLL, limits.sweep), self._poll, at_once=True))

    async def stop_looking(self) -> None:
        """Find no more work; leases are still renewed."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        await _cancel(self._looking)

    async def close(self) -> None:
        """Stop."""
        await self.stop_looking()
        if self._renewing is not None:
            await _cancel({self._renewing})

    def arm(self, when: datetime) -> None:
        """A run waits until `when`. One timer serves the earliest deadline of all."""
        if not self._open or (self._due_at is not None and self._due_at <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = when
        self._timer = self._services.clock.call_at(when, self._deadline_has_come)

    def _deadline_has_come(self) -> None:
        self._due_at = None
        self._look(self._careful(self._wake_due))

    async def _renew(self) -> None:
        if not self._driver.held:
            return
        lease_until = self._services.clock.now() + self._services.limits.lease

        def work(tx: Tx) -> None:
            runs.renew(connection_of(tx), owner=self._owner, lease_until=lease_until)

        await self._services.store.transact("engine:renew", work)

    async def _wake_due(self) -> None:
        services = self._services
        now = services.clock.now()

        def work(tx: Tx) -> datetime | None:
            connection = connection_of(tx)
            services.lifecycle.go_on(tx, runs.wake_due(connection, now=now, namespace=self._namespace))
            return runs.next_due(connection)

        next_due = await services.store.transact("engine:due", work)
        if next_due is not None:
            self.arm(next_due)

    async def _sweep(self) -> None:
        await self._wake_due()
        await self._wake_lost()
        now = self._services.clock.now()
        found = await self._services.store.read(
            lambda tx: runs.expired(connection_of(tx), now=now, namespace=self._namespace)
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
            woken = runs.wake_lost(connection_of(tx), now=now, namespace=self._namespace)
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
            if run.status is EngineStatus.CANCELLING:
                lifecycle.end(tx, run, CANCELLED)
                return
            crashes = runs.take_from_crashed(connection, run, now=now)
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
                lambda tx: runs.own_cancelling(connection_of(tx), owner=self._owner)
            )
            for run_id in cancelled:
                driver.cancel(run_id)
        after_id = ""
        while driver.backlog < LINE_MAX:
            after = after_id
            found = await self._services.store.read(
                lambda tx, after=after: runs.pending(  # type: ignore[misc]
                    connection_of(tx), namespace=self._namespace, after_id=after, limit=LINE_MAX
                )
            )
            for run in found:
                driver.announce(run)
            if len(found) < LINE_MAX:
                return
            after_id = found[-1].id

    async def _every(self, interval: timedelta, work: Callable[[], Awaitable[None]], *, at_once: bool) -> None:
        clock = self._services.clock
        if not at_once:
            await clock.sleep_until(clock.now() + interval)
        while True:
            # From now, not from the end: what takes long must not come late as well.
            due = clock.now() + interval
            if not await self._careful(work):
                due = min(due, clock.now() + AGAIN)
            await clock.sleep_until(due)

    async def _careful(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Nothing that goes wrong once may stop the looking. False: try again soon."""
        try:
            await work()
        except StoreBusy as busy:
            logger.warning("the engine's sweep was refused: %s", busy)
            return False
        except Exception:
            logger.exception("the engine's sweep failed")
            return False
        return True

    def _look(self, work: Coroutine[object, object, object]) -> None:
        async def run() -> None:
            await work

        task = asyncio.get_running_loop().create_task(run())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)


async def _cancel(tasks: set[asyncio.Task[None]]) -> None:
    waiting = set(tasks)
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
