"""A dispatched step as its worker sees it: marked as started, done, and its outcome left for the run."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from signoff.adapters.engine.core import runs, signals
from signoff.adapters.engine.core.codec import doubt_of, failure_of, store_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Services
from signoff.adapters.engine.core.journal import Kind, Mark, State
from signoff.adapters.engine.core.lifecycle import dead
from signoff.adapters.engine.core.runs import Standing
from signoff.adapters.engine.dbos import claims, tasks
from signoff.adapters.engine.dbos.dispatching import outcome_text, requeue
from signoff.adapters.engine.dbos.journal import append_mark
from signoff.adapters.engine.dbos.lifecycle import DbosLifecycle, task_signal
from signoff.adapters.engine.dbos.queues import Queues
from signoff.adapters.engine.dbos.tasks import TaskRow, TaskState
from signoff.domain.jsonvalue import encode
from signoff.errors import StepFailed, StoreBusy, control_flow, is_transient
from signoff.ports.engine import EngineStatus, Handler, TaskInfo
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)

#: How soon a step is tried again that the database refused for now.
_BUSY_PAUSE = timedelta(seconds=1)

#: Runs that will never look at a step's outcome.
_DEAF = (EngineStatus.COMPLETED, EngineStatus.CANCELLED, EngineStatus.CANCELLING)


@dataclass(slots=True, eq=False)
class Serving:
    """An attempt in this process."""

    task: "asyncio.Task[None]"
    cancelled: bool = False
    on_cancel: list[Callable[[], None]] = field(default_factory=list)

    def cancel(self) -> None:
        """The run was cancelled. Whoever asked to be told is told, in the event loop."""
        if self.cancelled:
            return
        self.cancelled = True
        callbacks, self.on_cancel = self.on_cancel, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a cancel callback raised")

    def call_on_cancel(self, callback: Callable[[], None]) -> None:
        """Call back when the run is cancelled; at once if it is."""
        if self.cancelled:
            callback()
        else:
            self.on_cancel.append(callback)


class Server:
    """Does the steps that DBOS hands to this worker. `arm` is told when a next attempt is due."""

    def __init__(
        self,
        services: Services,
        lifecycle: DbosLifecycle,
        queues: Queues,
        *,
        arm: Callable[[datetime], None],
    ) -> None:
        self._services = services
        self._lifecycle = lifecycle
        self._queues = queues
        self._arm = arm
        self._serving: dict[str, set[Serving]] = {}

    @property
    def run_ids(self) -> list[str]:
        """Runs of which a step is executed here."""
        return list(self._serving)

    def cancel(self, run_id: str) -> None:
        """The run was cancelled; tell its steps that are executed here."""
        for serving in list(self._serving.get(run_id, ())):
            serving.cancel()

    def abort(self) -> None:
        """Let go of every step by force."""
        for servings in self._serving.values():
            for serving in servings:
                serving.task.cancel()

    async def serve(self, run_id: str, position: int, dispatches: int) -> None:
        """Do one attempt. Returns once what follows from it is committed."""
        current = asyncio.current_task()
        assert current is not None
        serving = Serving(current)
        self._serving.setdefault(run_id, set()).add(serving)
        try:
            row = await self._transact("engine:task", lambda tx: self._claim(tx, run_id, position, dispatches))
            if row is not None:
                await self._attempt(serving, row)
        finally:
            servings = self._serving[run_id]
            servings.discard(serving)
            if not servings:
                del self._serving[run_id]

    def enqueue_due(self, tx: Tx) -> datetime | None:
        """Enqueue the steps whose next attempt is due; when the next one after them is."""
        connection = connection_of(tx)
        for row in tasks.due(connection, self._services.clock.now()):
            self._enqueue(tx, row, row)
        return tasks.next_due(connection)

    # the transactions ---------------------------------------------------------------------------------------

    def _claim(self, tx: Tx, run_id: str, position: int, dispatches: int) -> TaskRow | None:
        """queued -> started. None: out of date, not wanted any more, or not to be repeated."""
        connection = connection_of(tx)
        run = runs.standing(connection, run_id)
        row = tasks.get(connection, run_id, position)
        if run is None or row is None or row.dispatches != dispatches or row.state is TaskState.SETTLED:
            return None
        if run.status in _DEAF:
            tasks.change(connection, row, replace(row, state=TaskState.SETTLED, next_at=None))
            self._lifecycle.end_cancelled(tx, run_id)
            return None
        if row.state is TaskState.STARTED and not self._may_repeat(tx, run, row):
            return None
        if run.status.is_terminal:  # failed or dead: if an operator drives it again, the step is enqueued again
            return None
        now = self._services.clock.now()
        started = replace(
            row, state=TaskState.STARTED, attempt=row.attempt + 1, failure=None, started_at=now, next_at=None
        )
        return started if tasks.change(connection, row, started) else None

    def _may_repeat(self, tx: Tx, run: Standing, row: TaskRow) -> bool:
        """A worker died with this step. False: it is in doubt, or the run has killed too many workers."""
        connection = connection_of(tx)
        logger.warning("the worker of step %r of run %r is gone", row.name, row.run_id)
        crashes = claims.count_crash(connection, row.run_id)
        is_last = crashes >= self._services.limits.crashes_max
        if not row.policy.repeatable:
            self._put_in_doubt(tx, row)
        elif run.status.is_terminal or is_last:
            tasks.change(connection, row, replace(row, state=TaskState.QUEUED))
        else:
            return True
        now = runs.standing(connection, row.run_id)
        if is_last and now is not None and not now.status.is_terminal:
            self._lifecycle.end(tx, now, dead(crashes))
        return False

    def _settle(self, tx: Tx, row: TaskRow, state: State, body: str) -> None:
        """started -> settled, and tell the run. Another worker that has taken over makes this a no-op."""
        connection = connection_of(tx)
        run = runs.standing(connection, row.run_id)
        settled = replace(row, state=TaskState.SETTLED, failure=None, next_at=None)
        if run is None or not tasks.change(connection, row, settled):
            return
        if run.status in _DEAF:
            # What a step brings home counts, also for a run that was cancelled meanwhile: people want to know.
            if run.status is EngineStatus.CANCELLING and not (row.policy.repeatable and state is State.FAILED):
                self._journal(connection, row, state, body)
            self._lifecycle.end_cancelled(tx, row.run_id)
            return
        signal = task_signal(row.position)
        signals.leave(
            connection,
            run_id=row.run_id,
            name=signal,
            payload=outcome_text(state, row.attempt, body),
            dedup_key=f"{signal}:{row.attempt}",
            at=self._services.clock.now(),
        )
        self._lifecycle.wake(tx, row.run_id, signal)

    def _journal(self, connection: Connection, row: TaskRow, state: State, body: str) -> None:
        mark = Mark(
            position=row.position,
            kind=Kind.DISPATCH,
            name=row.name,
            state=state,
            attempt=row.attempt,
            body=body,
            at=self._services.clock.now(),
        )
        append_mark(self._queues.client, connection, row.run_id, mark)

    def _put_in_doubt(self, tx: Tx, row: TaskRow) -> None:
        started_at = "" if row.started_at is None else row.started_at.isoformat()
        self._settle(tx, row, State.DOUBT, encode(doubt_of(started_at=started_at, attempt=row.attempt)))

    def _retry_later(self, tx: Tx, row: TaskRow, failure: str | None, wait: timedelta, *, spare: int = 0) -> None:
        """started -> retrying."""
        next_at = self._services.clock.now() + wait
        later = replace(row, state=TaskState.RETRYING, spared=row.spared + spare, failure=failure, next_at=next_at)
        if tasks.change(connection_of(tx), row, later):
            tx.on_commit(lambda: self._arm(next_at))

    def _enqueue(self, tx: Tx, row: TaskRow, changed: TaskRow) -> None:
        """-> queued, once more."""
        run = runs.standing(connection_of(tx), row.run_id)
        if run is not None:
            requeue(tx, self._queues, row, changed, namespace=run.namespace)

    # the attempt --------------------------------------------------------------------------------------------

    async def _attempt(self, serving: Serving, row: TaskRow) -> None:
        handler = self._services.groups.get(row.worker_group).handler
        assert handler is not None, "a worker listens only to the queues of groups that it serves"
        try:
            outcome = await self._call(serving, handler, row)
        except asyncio.CancelledError:
            # By force: the process ends. What may be repeated goes back, what may not stays started: in doubt.
            if row.policy.repeatable:
                spared = replace(row, spared=row.spared + 1)
                await asyncio.shield(self._transact("engine:task", lambda tx: self._enqueue(tx, row, spared)))
            raise
        policy = row.policy
        match outcome:
            case str(body):
                await self._transact(row.name, lambda tx: self._settle(tx, row, State.DONE, body))
            case StoreBusy() if policy.repeatable:
                await self._transact(row.name, lambda tx: self._retry_later(tx, row, None, _BUSY_PAUSE, spare=1))
            case StoreBusy():
                await self._transact(row.name, lambda tx: self._put_in_doubt(tx, row))
            case _ if is_transient(outcome) and row.attempt - row.spared < policy.attempts:
                failure = encode(failure_of(outcome))
                wait = policy.wait_after(row.attempt - row.spared, self._services.ids.jitter())
                await self._transact(row.name, lambda tx: self._retry_later(tx, row, failure, wait))
            case _:
                failure = encode(failure_of(outcome))
                await self._transact(row.name, lambda tx: self._settle(tx, row, State.FAILED, failure))

    async def _call(self, serving: Serving, handler: Handler, row: TaskRow) -> str | BaseException:
        """The value's JSON text, or why the attempt failed."""
        info = TaskInfo(
            run_id=row.run_id,
            name=row.name,
            attempt=row.attempt,
            idempotency_key=f"{row.run_id}:{row.position}",
            cancelled=lambda: serving.cancelled,
            on_cancel=serving.call_on_cancel,
            is_current=lambda tx: tasks.is_started(connection_of(tx), row),
        )
        # A task of its own: when the handler cancels what it runs in, that is its failure and not our end.
        work = asyncio.ensure_future(handler(row.input, info))
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        if work.cancelled():
            return StepFailed(row.name, error_type="CancelledError", message="the step was cancelled from inside")
        error = work.exception()
        if error is None:
            try:
                return store_value(row.name, work.result(), bytes_max=self._services.limits.entry_bytes_max)
            except Exception as refused:  # noqa: BLE001  # a value that cannot be stored is a failure of the step
                return refused
        if control_flow(error) is not None:
            return StepFailed(row.name, error_type=type(error).__name__, message="the step was cancelled from inside")
        return error

    async def _transact(self, label: str, work: Callable[[Tx], object]) -> TaskRow | None:
        """Commit, however long the store is busy: an outcome that is not written would be in doubt."""
        services = self._services
        while True:
            try:
                row = await services.store.transact(label, work)
            except StoreBusy:
                logger.warning("%s: the store is busy", label)
                await services.clock.sleep_until(services.clock.now() + _BUSY_PAUSE)
            else:
                return row if isinstance(row, TaskRow) else None
