"""Drives runs in this process: takes them into line, claims them, has them executed and settled."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from signoff.adapters.engine.core import journal, leases, undo_rows
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution, Services
from signoff.adapters.engine.core.journal import Row
from signoff.adapters.engine.core.leases import Claimed
from signoff.adapters.engine.core.settling import Settler
from signoff.adapters.engine.core.wakeups import Woken
from signoff.errors import StoreBusy
from signoff.ports.engine import Body
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

#: For a group "runs" that the limits do not name.
RUNS_MAX = 256


class Driver:
    """At most `concurrency["runs"]` bodies in memory; the ids of the others wait in line.

    `owner` names this worker in the leases. `arm` is told the deadline of each run that parks.
    """

    def __init__(
        self, services: Services, bodies: Mapping[str, Body], *, owner: str, arm: Callable[[datetime], None]
    ) -> None:
        self.held: dict[str, Execution] = {}
        self._services = services
        self._bodies = bodies
        self._owner = owner
        self._settler = Settler(services, bodies, arm=arm)
        self._slots = services.limits.concurrency.get("runs", RUNS_MAX)
        self._ready: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unknown: set[str] = set()
        self._accepting = False

    @property
    def backlog(self) -> int:
        """How many runs wait in line here."""
        return len(self._ready)

    def open(self) -> None:
        """Begin to take runs."""
        self._accepting = True

    def announce(self, run: Woken) -> None:
        """The run is pending, or to be undone: claim it when there is room.

        Harmless if it is not, or if another worker is faster.
        """
        if not self._accepting:
            return
        if run.workflow not in self._bodies:
            if run.workflow not in self._unknown:
                self._unknown.add(run.workflow)
                logger.warning("runs like %r wait: workflow %r is not registered here", run.id, run.workflow)
            return
        held = self.held.get(run.id)
        if held is not None:
            held.again = True  # it is about to leave memory; looked at again then
            return
        self._ready[run.id] = None
        self._pump()

    def cancel(self, run_id: str) -> None:
        """The run was cancelled; tell its body if it runs here."""
        execution = self.held.get(run_id)
        if execution is not None:
            execution.cancel()

    async def drain(self, until: datetime) -> None:
        """Take nothing new; runs stop at their next primitive, when `until` has come by force."""
        self._accepting = False
        self._ready.clear()
        for execution in self.held.values():
            execution.release()
        timer = self._services.clock.call_at(until, self._abort)
        try:
            while self._tasks:
                await asyncio.wait(set(self._tasks))
        finally:
            timer.cancel()

    def _abort(self) -> None:
        for execution in self.held.values():
            execution.abort()

    def _pump(self) -> None:
        while self._ready and len(self.held) < self._slots:
            run_id = next(iter(self._ready))
            del self._ready[run_id]
            # Known here before the claim, so that a cancel which commits right after it finds whom to tell.
            execution = Execution(run_id=run_id, services=self._services)
            self.held[run_id] = execution
            task = asyncio.get_running_loop().create_task(self._drive(execution), name=f"run {run_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drive(self, execution: Execution) -> None:
        try:
            claimed = await self._claim(execution)
            if not self._accepting:
                execution.release()
            if claimed is not None:
                await self._settler.settle(execution, await self._settler.execute(execution, *claimed))
        except StoreBusy:
            logger.warning("the store is too busy to claim run %r, or to let it go", execution.run_id)
        except Exception:
            logger.exception("run %r could not be settled; it is recovered when its lease is over", execution.run_id)
        finally:
            del self.held[execution.run_id]
            if execution.again and self._accepting:
                self._ready[execution.run_id] = None
            self._pump()

    async def _claim(self, execution: Execution) -> tuple[Claimed, list[Row]] | None:
        services = self._services
        now = services.clock.now()
        lease_until = now + services.limits.lease

        def work(tx: Tx) -> tuple[Claimed, list[Row]] | None:
            connection = connection_of(tx)
            run_id, owner = execution.run_id, self._owner
            claimed = leases.claim(connection, run_id, owner=owner, now=now, lease_until=lease_until)
            if claimed is None:
                claimed = undo_rows.claim(connection, run_id, owner=owner, now=now, lease_until=lease_until)
            if claimed is None:
                return None
            return claimed, journal.load(connection, execution.run_id) if claimed.fence > 1 else []

        return await services.store.transact("engine:claim", work)
