"""A run as its worker sees it: claimed when DBOS activates it, executed, parked or ended."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from dbos import DBOSClient

from signoff.adapters.engine.core import runs
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution, Services
from signoff.adapters.engine.core.journal import Row
from signoff.adapters.engine.core.leases import Claimed
from signoff.adapters.engine.core.lifecycle import CANCELLED, dead
from signoff.adapters.engine.core.settling import Returned, Settler
from signoff.adapters.engine.dbos import claims, journal
from signoff.adapters.engine.dbos.execution import DbosExecution
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import ControlFlow, StoreBusy, control_flow
from signoff.ports.engine import Body, EngineStatus
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

#: What each activation of a run returns to DBOS. The run's own row says whether it is parked or has ended.
PARKED: JsonObject = {"signoff": "parked or ended"}


class DbosSettler(Settler):
    """As `Settler`, for executions that may owe the journal marks."""

    async def settle(self, execution: Execution, outcome: Returned | BaseException) -> None:
        """See `Settler`."""
        assert isinstance(execution, DbosExecution)
        if isinstance(outcome, Returned) or control_flow(outcome) not in ("diverged", "lease_lost"):
            try:
                await execution.flush()
            except ControlFlow as stopped:
                outcome = stopped
        await super().settle(execution, outcome)


class Driver:
    """Executes the runs that DBOS hands to this worker. `owner` names the worker in their rows."""

    def __init__(
        self,
        services: Services,
        bodies: Mapping[str, Body],
        client: DBOSClient,
        *,
        owner: str,
        arm: Callable[[datetime], None],
    ) -> None:
        self.held: dict[str, Execution] = {}
        #: Runs that were let go, to be put back once DBOS sees their activations end.
        self.released: set[str] = set()
        self._services = services
        self._bodies = bodies
        self._client = client
        self._owner = owner
        self._settler = DbosSettler(services, bodies, arm=arm)
        self._draining = False

    async def drive(self, run_id: str) -> JsonObject:
        """One activation: from where the journal ends to the next wait, or to the end."""
        if self._is_draining():
            self.released.add(run_id)
            return PARKED
        execution = DbosExecution(run_id=run_id, services=self._services, client=self._client)
        self.held[run_id] = execution
        try:
            found = await self._services.store.transact("engine:claim", lambda tx: self._claim(tx, run_id))
            if found is None:
                return PARKED
            claimed, rows = found
            if self._is_draining():
                execution.release()
            await self._settler.settle(execution, await self._settler.execute(execution, claimed, rows))
        except StoreBusy:
            logger.warning("run %r could not be claimed: the store is busy", run_id)
        finally:
            if self.held.get(run_id) is execution:
                del self.held[run_id]
            if control_flow_of(execution) == "released":
                self.released.add(run_id)
        return PARKED

    def cancel(self, run_id: str) -> None:
        """The run was cancelled; tell its body if it runs here."""
        execution = self.held.get(run_id)
        if execution is not None:
            execution.cancel()

    def release(self) -> None:
        """Drive nothing new; runs stop at their next primitive."""
        self._draining = True
        for execution in self.held.values():
            execution.release()

    def abort(self) -> None:
        """Let go of every run by force."""
        for execution in self.held.values():
            execution.abort()

    def _is_draining(self) -> bool:
        return self._draining

    def _claim(self, tx: Tx, run_id: str) -> tuple[Claimed, list[Row]] | None:
        """The run, and its journal so far. None: it is not to be driven here."""
        connection = connection_of(tx)
        lifecycle, limits = self._services.lifecycle, self._services.limits
        run = runs.standing(connection, run_id)
        if run is None:
            return None
        if run.status is EngineStatus.CANCELLING:
            # Whoever drove it is gone: DBOS would not have handed it to us otherwise.
            lifecycle.end(tx, run, CANCELLED)
            return None
        if run.workflow not in self._bodies:
            logger.error("run %r waits: its workflow %r is not registered in this worker", run_id, run.workflow)
            return None
        found = claims.claim(connection, run_id, owner=self._owner, now=self._services.clock.now())
        if found is None:
            return None
        claimed, crashes = found
        if run.status is EngineStatus.RUNNING:
            logger.warning("the worker of run %r is gone (%d times in a row)", run_id, crashes)
            if crashes >= limits.crashes_max:
                running = runs.standing(connection, run_id)
                assert running is not None
                lifecycle.end(tx, running, dead(crashes))
                return None
        return claimed, journal.load(self._client, connection, run_id) if claimed.fence > 1 else []


def control_flow_of(execution: Execution) -> str | None:
    """Why the execution was stopped, if it was."""
    return None if execution.stop is None else control_flow(execution.stop)
