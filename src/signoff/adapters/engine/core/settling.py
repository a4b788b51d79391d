"""From a claimed run to its next status: run the body, then write what follows from how it ended."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from signoff.adapters.engine.core import journal, leases, runs, undo_rows
from signoff.adapters.engine.core.codec import load_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.context import EngineContext
from signoff.adapters.engine.core.control import Refused, Released, Why
from signoff.adapters.engine.core.execution import Execution, Services
from signoff.adapters.engine.core.journal import Hold, Row
from signoff.adapters.engine.core.leases import Claimed
from signoff.adapters.engine.core.lifecycle import CANCELLED, failed
from signoff.adapters.engine.core.runs import Ending
from signoff.adapters.engine.core.undoing import undo, why_not_undone
from signoff.adapters.engine.core.wakeups import Woken
from signoff.domain.jsonvalue import Json, JsonObject, as_object, normalise
from signoff.errors import ContinueAsNew, ReplayDiverged, RunCancelled, RunSuspended, StoreBusy, control_flow
from signoff.ports.engine import Body, EngineStatus
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

_BUSY_PAUSE = timedelta(seconds=1)


class Settler:
    """Executes runs that this worker has claimed. `arm` is told the deadline of each run that parks."""

    def __init__(self, services: Services, bodies: Mapping[str, Body], *, arm: Callable[[datetime], None]) -> None:
        self._services = services
        self._bodies = bodies
        self._arm = arm

    async def execute(self, execution: Execution, claimed: Claimed, rows: list[Row]) -> "Returned | BaseException":
        """Run the body; its output, or what it raised. One that is to be undone is undone, and was cancelled then."""
        execution.fence = claimed.fence
        execution.namespace = claimed.namespace
        if claimed.undoing:
            execution.begin_undo()
        try:
            input_ = as_object(load_value(claimed.input), what=f"input of run {execution.run_id!r}")
            execution.entries = {row.position: journal.decode(row) for row in rows}
        except Exception as error:
            logger.exception("run %r is set aside: its journal cannot be read", execution.run_id)
            return JournalUnreadable(execution.run_id, error)
        execution.unread = {position for position in execution.entries if position > 0}
        if execution.releasing:
            return Released(f"run {execution.run_id!r} is released")
        body = await _to_its_end(execution, _run(self._bodies[claimed.workflow], EngineContext(execution), input_))
        if execution.undoing:
            return why_not_undone(execution, body) or await self._undo(execution)
        return _outcome(execution, body, bytes_max=self._services.limits.entry_bytes_max)

    async def _undo(self, execution: Execution) -> BaseException:
        undoing = await _to_its_end(execution, undo(execution))
        if undoing.cancelled():
            return Released(f"run {execution.run_id!r} is released")
        return undoing.exception() or RunCancelled(f"run {execution.run_id!r} was cancelled, and is undone")

    async def settle(self, execution: Execution, outcome: "Returned | BaseException") -> None:
        """Give the run the status that follows from how its body ended."""
        match outcome:
            case Returned(output):
                await self._end(execution, Ending(status=EngineStatus.COMPLETED, output=output), None)
            case ContinueAsNew():
                await self._continue(execution, outcome)
            case _:
                match control_flow(outcome):
                    case "suspended":
                        await self._park(execution)
                    case "cancelled":
                        await self._end(execution, CANCELLED, outcome)
                    case "released":
                        await self.release(execution)
                    case "lease_lost":
                        logger.info("run %r is driven elsewhere", execution.run_id)
                    case "diverged":
                        logger.error("%s", outcome)
                        await self._end(execution, failed(outcome, code="replay_diverged"), outcome)
                    case _:
                        logger.info("run %r failed", execution.run_id, exc_info=outcome)
                        await self._end(execution, failed(outcome), outcome)

    async def _end(
        self,
        execution: Execution,
        ending: Ending,
        error: BaseException | None,
        *,
        then: Callable[[Tx, runs.Standing], None] | None = None,
    ) -> None:
        lifecycle = self._services.lifecycle

        def work(tx: Tx, observed: bool) -> None:
            run = runs.standing(connection_of(tx), execution.run_id)
            if run is None or run.fence != execution.fence:
                return
            if run.is_undone and not execution.undoing:
                undo_rows.let_go(connection_of(tx), run.id, fence=run.fence, now=self._services.clock.now())
                lifecycle.announce(tx, [Woken(run.id, run.workflow)])
            elif run.status is EngineStatus.CANCELLING and not execution.undoing:
                lifecycle.end(tx, run, CANCELLED, error=error, observed=observed)
            elif run.status in (EngineStatus.RUNNING, EngineStatus.CANCELLING):
                if not lifecycle.end(tx, run, ending, error=error, tip=execution.tip, observed=observed):
                    raise Refused(run.id, Why.GAP)
                if then is not None:
                    then(tx, run)

        try:
            await self._persist(execution, "engine:end", work)
        except Refused:
            await self.release(execution)

    async def _continue(self, execution: Execution, successor: ContinueAsNew) -> None:
        try:
            what, bytes_max = f"input of run {successor_id(execution.run_id)!r}", self._services.limits.entry_bytes_max
            input_ = as_object(normalise(successor.input, what=what, bytes_max=bytes_max), what=what)
        except Exception as error:  # noqa: BLE001  # not JSON, or too large
            await self._end(execution, failed(error), error)
            return

        def start_successor(tx: Tx, run: runs.Standing) -> None:
            self._services.lifecycle.start(
                tx,
                run_id=successor_id(run.id),
                workflow=run.workflow,
                input_=input_,
                parent_id=run.parent_id,
                linked=run.linked,
                namespace=run.namespace,
            )

        await self._end(execution, Ending(status=EngineStatus.COMPLETED), None, then=start_successor)

    async def _park(self, execution: Execution) -> None:
        lifecycle = self._services.lifecycle
        now = self._services.clock.now()

        def work(tx: Tx, observed: bool) -> None:
            parked = leases.park(connection_of(tx), execution.hold, now=now)
            if parked is None:
                raise journal.refusal(connection_of(tx), execution.hold)
            status, wake_at, workflow = parked
            if status is EngineStatus.PENDING:
                lifecycle.announce(tx, [Woken(execution.run_id, workflow)])
                return
            if observed:
                lifecycle.parked(tx, execution.run_id)
            if wake_at is not None:
                tx.on_commit(lambda: self._arm(wake_at))

        try:
            await self._persist(execution, "engine:park", work)
        except Refused as refused:
            if refused.why is Why.CANCELLED:
                await self._end(execution, CANCELLED, None)
            elif refused.why is Why.GAP:
                await self.release(execution)

    async def release(self, execution: Execution) -> None:
        """Back to pending, or to be undone by the next.

        Whoever looks next takes it: this process not at once, so that a busy store can rest.
        """
        hold = Hold(run_id=execution.run_id, fence=execution.fence)
        now = self._services.clock.now()

        def work(tx: Tx, _observed: bool) -> None:
            connection = connection_of(tx)
            if execution.undoing:
                undo_rows.let_go(connection, hold.run_id, fence=hold.fence, now=now)
            elif not leases.release(connection, hold, now=now):
                raise journal.refusal(connection, hold)

        try:
            await self._persist(execution, "engine:release", work)
        except Refused as refused:
            if refused.why is Why.CANCELLED:
                await self._end(execution, CANCELLED, None)

    async def _persist(self, execution: Execution, label: str, work: Callable[[Tx, bool], None]) -> None:
        """Commit a change of status, however long the store is busy; `work` is told whether to tell the observer.

        Raises:
            StoreBusy: and this process has no time left. The run is found when its lease is over.
        """
        services = self._services
        observed = True
        while True:
            try:
                await services.store.transact(label, lambda tx, observed=observed: work(tx, observed))  # type: ignore[misc]
            except StoreBusy:
                if execution.aborted:
                    raise
                logger.warning("%s: the store is busy", label)
                await services.clock.sleep_until(services.clock.now() + _BUSY_PAUSE)
            except Refused:
                raise
            except Exception:
                if not observed:
                    raise
                # Whatever the observer cannot settle, the run has ended: it must not be driven for ever.
                logger.exception("%s: failed; once more without the observer", label)
                observed = False
            else:
                return


@dataclass(frozen=True, slots=True)
class Returned:
    """The body's output."""

    output: Json


class JournalUnreadable(Exception):
    """What the database holds for a run is not what the engine wrote. Only an operator can help."""

    code = "journal_corrupt"

    def __init__(self, run_id: str, cause: Exception) -> None:
        super().__init__(f"the journal of run {run_id!r} cannot be read: {cause}")
        self.run_id = run_id


def successor_id(run_id: str) -> str:
    """``<id>`` -> ``<id>~1`` -> ``<id>~2`` …"""
    base, mark, number = run_id.rpartition("~")
    return f"{base}~{int(number) + 1}" if mark and number.isdecimal() else f"{run_id}~1"


async def _to_its_end(execution: Execution, work: Coroutine[object, object, Json]) -> "asyncio.Task[Json]":
    """Run what may be aborted; returns once everything that it began has settled."""
    execution.body = asyncio.get_running_loop().create_task(work)
    await asyncio.wait({execution.body})
    await execution.quiet()
    return execution.body


async def _run(body: Body, context: EngineContext, input_: JsonObject) -> Json:
    return await body(context, input_)


def _outcome(execution: Execution, body: "asyncio.Task[Json]", *, bytes_max: int) -> Returned | BaseException:
    """How the body ended. What stopped the run counts, also when the body swallowed it."""
    error = asyncio.CancelledError("the body cancelled itself") if body.cancelled() else body.exception()
    if execution.stop is not None:
        return execution.stop
    if execution.aborted and body.cancelled():
        return Released(f"run {execution.run_id!r} is released")
    if error is None and execution.parked:
        return RunSuspended("the body returned although it waits")
    if isinstance(error, RunSuspended) and not execution.parked:
        return RuntimeError("the body was suspended, but it waits for nothing")
    if error is not None and not isinstance(error, ContinueAsNew):
        return error
    try:
        execution.finish()
        if isinstance(error, ContinueAsNew):
            return error
        return Returned(normalise(body.result(), what=f"output of run {execution.run_id!r}", bytes_max=bytes_max))
    except (ReplayDiverged, Exception) as refused:  # noqa: BLE001  # whatever it is, it is the run's outcome
        return refused
