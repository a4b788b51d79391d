"""A step for a worker group: mark, work, result.

The mark says "started, attempt n". What a replay makes of a mark without a result is the caller's promise:
a repeatable step runs again as the next attempt, another one is in doubt.

What waits for the disk: a step that may not be repeated awaits its mark (no effect begins that a restart could not
see, nor after a cancel that was answered) and its result (every millisecond until it is durable could put a finished
action in doubt). A repeatable one awaits neither; `journal.Hold` says why its result may be used before it is durable.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime

from signoff.adapters.engine.core.codec import NULL, doubt_of, failure_of, load_value, store_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution
from signoff.adapters.engine.core.groups import Group
from signoff.adapters.engine.core.journal import Entry, Kind, Mark, State
from signoff.domain.jsonvalue import Json, JsonObject, encode
from signoff.errors import StepFailed, StoreBusy, control_flow, is_transient
from signoff.ports.engine import Handler, Retry, Task, TaskInfo, in_doubt, step_failed

logger = logging.getLogger(__name__)


async def dispatch(
    execution: Execution, position: int, entry: Entry | None, name: str, task: Task, retry: Retry
) -> Json:
    """The step's value; see `ports.engine.Context.dispatch`."""
    step = _Step(execution, position, name, task, retry)
    if entry is None:
        return await step.run(after=0, spared=0)
    match entry.state:
        case State.DONE:
            return entry.body
        case State.FAILED:
            raise step_failed(name, entry.body)
        case State.DOUBT:
            raise in_doubt(name, entry.body)
        case State.STARTED if not retry.repeatable:
            raise await step.put_in_doubt(entry)
        case State.STARTED:
            return await step.run(after=entry.attempt, spared=_spared(entry.body))
        case _:
            await step.sleep_until(_next_at(entry.body))
            return await step.run(after=entry.attempt, spared=_spared(entry.body))


def retrying_body(*, next_at: datetime, spared: int, failure: JsonObject) -> JsonObject:
    """The body of a step that waits for its next attempt. The first `spared` attempts do not count any more."""
    return {**failure, "next_at": next_at.isoformat(), "spared": spared}


def _next_at(body: Json) -> datetime:
    fields = body if isinstance(body, dict) else {}
    return datetime.fromisoformat(str(fields.get("next_at")))


def _spared(body: Json) -> int:
    spared = body.get("spared") if isinstance(body, dict) else None
    return spared if isinstance(spared, int) else 0


@dataclass(slots=True)
class _Step:
    execution: Execution
    position: int
    name: str
    task: Task
    retry: Retry

    async def run(self, *, after: int, spared: int) -> Json:
        """Attempt `after + 1` and, while failures pass by themselves, the ones after it."""
        attempt = after
        marked = after > 0
        while True:
            attempt += 1
            group = self.execution.services.groups.get(self.task.group)
            handler = await self._slot(group)
            try:
                # Only now: a step that queues for a slot has not started, and a crash must not put it in doubt.
                await self._start(attempt, spared, marked=marked)
                marked = True
                outcome = await self._attempt(handler, attempt)
            finally:
                group.slots.release()
            if not isinstance(outcome, BaseException):
                return await self._done(outcome, attempt)
            if self.execution.cancelled and self.retry.repeatable:
                self.execution.raise_if_stopped()
            if not is_transient(outcome) or attempt - spared >= self.retry.attempts:
                raise await self._failed(outcome, attempt)
            next_at = await self._retry_later(outcome, attempt, spared)
            await self.sleep_until(next_at)

    async def sleep_until(self, when: datetime) -> None:
        """Wait for the next attempt; a cancel or a release of the run ends the wait."""
        clock = self.execution.services.clock
        await self._interruptible(clock.sleep_until(when))

    async def put_in_doubt(self, entry: Entry) -> Exception:
        """Journal that nobody knows, and return what says so."""
        body = doubt_of(started_at=entry.at.isoformat(), attempt=entry.attempt)
        await self.execution.change(self._mark(State.DOUBT, entry.attempt, encode(body)))
        return in_doubt(self.name, body)

    async def _slot(self, group: Group) -> Handler:
        """Wait for a handler and a slot of the group; returns with the slot taken."""
        if group.handler is None:
            logger.warning(
                "run %r waits at %r: nobody serves the group %r here",
                self.execution.run_id,
                self.name,
                self.task.group,
            )
            await self._interruptible(group.served.wait())
        if group.slots.locked():
            await self._interruptible(group.slots.acquire(), undo=group.slots.release)
        else:
            await group.slots.acquire()
        handler = group.handler
        assert handler is not None
        return handler

    async def _start(self, attempt: int, spared: int, *, marked: bool) -> None:
        self.execution.raise_if_stopped()
        mark = self._mark(State.STARTED, attempt, encode({"spared": spared}) if spared else NULL)
        if marked:
            await self.execution.change(mark)
        elif self.retry.repeatable and not self.retry.marked_first:
            self.execution.append_soon(mark)
        else:
            await self.execution.append(mark)

    async def _attempt(self, handler: Handler, attempt: int) -> str | Exception:
        """The value's JSON text, or why the attempt failed. Control flow passes."""
        execution = self.execution
        hold = execution.hold
        info = TaskInfo(
            run_id=execution.run_id,
            name=self.name,
            attempt=attempt,
            idempotency_key=f"{execution.run_id}:{self.position}",
            cancelled=lambda: execution.cancelled,
            on_cancel=execution.call_on_cancel,
            is_current=lambda tx: hold.is_good(connection_of(tx)),
        )
        # A task of its own: when the handler cancels what it runs in, that is its failure and not our end.
        work = asyncio.ensure_future(handler(self.task.input, info))
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait({work})
            raise
        if work.cancelled():
            return StepFailed(self.name, error_type="CancelledError", message="the step was cancelled from inside")
        error = work.exception()
        if error is None:
            try:
                return store_value(self.name, work.result(), bytes_max=execution.services.limits.entry_bytes_max)
            except Exception as refused:  # noqa: BLE001  # a value that cannot be stored is a failure of the step
                return refused
        if isinstance(error, StoreBusy):
            raise execution.busy(error) from error
        if isinstance(error, Exception):
            return error
        if control_flow(error) == "cancelled" and not execution.cancelled:
            return StepFailed(self.name, error_type=type(error).__name__, message="the step was cancelled from inside")
        raise error

    async def _done(self, body: str, attempt: int) -> Json:
        mark = self._mark(State.DONE, attempt, body)
        if self.retry.repeatable:
            self.execution.change_soon(mark, late=True)
            if self.execution.cancelled:
                self.execution.raise_if_stopped()
        else:
            await self.execution.change(mark, late=True)
        return load_value(body)

    async def _failed(self, error: Exception, attempt: int) -> StepFailed:
        """Journal the failure for good, so that no replay tries again."""
        body = failure_of(error)
        mark = self._mark(State.FAILED, attempt, encode(body))
        if self.retry.repeatable:
            self.execution.change_soon(mark, late=True)
        else:
            await self.execution.change(mark, late=True)
        return step_failed(self.name, body)

    async def _retry_later(self, error: Exception, attempt: int, spared: int) -> datetime:
        """Journal when the next attempt is due: a crash neither loses nor shortens the wait."""
        services = self.execution.services
        wait = self.retry.wait_after(attempt - spared, services.ids.jitter())
        next_at = services.clock.now() + wait
        body = retrying_body(next_at=next_at, spared=spared, failure=failure_of(error))
        logger.info(
            "run %r: attempt %d of %r failed, the next one in %s", self.execution.run_id, attempt, self.name, wait
        )
        await self.execution.change(self._mark(State.RETRYING, attempt, encode(body)), late=True)
        return next_at

    def _mark(self, state: State, attempt: int, body: str) -> Mark:
        return Mark(
            position=self.position,
            kind=Kind.DISPATCH,
            name=self.name,
            state=state,
            attempt=attempt,
            body=body,
            at=self.execution.services.clock.now(),
        )

    async def _interruptible(
        self, waiting: Coroutine[object, object, object], *, undo: Callable[[], None] | None = None
    ) -> None:
        """Wait, unless the run is stopped meanwhile: then undo what the wait may still have got, and stop."""
        wanted = asyncio.ensure_future(waiting)
        interrupted = asyncio.ensure_future(self.execution.interrupted.wait())
        try:
            await asyncio.wait({wanted, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            self.execution.raise_if_stopped()
        except BaseException:
            if not wanted.cancel() and undo is not None:
                undo()
            raise
        finally:
            interrupted.cancel()
