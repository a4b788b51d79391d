"""Runs turns in this process: nothing survives it, everything else is as in the durable runner.

The loop gets a `Context` without a journal. A run whose process died is settled by a sweep of whoever opens the
database next, so that its thread is free and its cards refuse.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Never, TypeVar

from signoff.domain.jsonvalue import Json, JsonObject, normalise
from signoff.domain.run import Run, RunStatus
from signoff.errors import (
    ChildCancelled,
    ConfigurationError,
    ControlFlow,
    RunCancelled,
    RunSuspended,
    SignalTimeout,
    SignoffError,
    StepFailed,
)
from signoff.ports.clock import Timer
from signoff.ports.engine import Context, Handler, Retry, SignalOutcome, Task, TaskInfo
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.runners.backoff import is_transient, wait_before
from signoff.turn import settle
from signoff.turn.deps import TurnDeps
from signoff.turn.failure import wire_code
from signoff.turn.input import TurnInput
from signoff.turn.llm import ModelCalls
from signoff.turn.loop import run_turn
from signoff.turn.together import settle_all
from signoff.turn.tool_calls import ToolCalls

_log = logging.getLogger("signoff.inline")

T = TypeVar("T")

LEASE = timedelta(seconds=30)
ENTRY_BYTES_MAX = 1024 * 1024


class InlineRunner:
    """Drives each run as a task of the running event loop."""

    durable = False

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps
        self._owner = deps.ids.new("inline")
        self._handlers: dict[str, Handler] = {"llm": ModelCalls(deps), "tool": ToolCalls(deps)}
        self._runs: dict[str, _InlineRun] = {}
        self._lease_timer: Timer | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    async def open(self) -> None:
        """Settle what processes that died have left, and keep the leases of our own runs fresh."""
        self._loop = asyncio.get_running_loop()
        self._closing = False
        await self._sweep()
        self._arm()

    async def close(self) -> None:
        """Stop all runs of this process. They are lost, as this runner says; their rows are settled as failed."""
        self._closing = True
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._chores, return_exceptions=True)

    def start(self, tx: Tx, run: Run) -> None:
        """See `ports.runner.Runner`."""
        tx.change_run(run.id, owner=self._owner, lease_until=self._deps.clock.now() + LEASE)
        tx.on_commit(lambda: self.launch(TurnInput.of(run)))

    def signal(self, tx: Tx, run_id: str, name: str, payload: JsonObject, *, dedup_key: str) -> SignalOutcome:
        """See `ports.runner.Runner`. A run that lives in another process, or died with it, cannot be reached."""
        del dedup_key  # the card's conditional write has let only one decision through
        run = self._runs.get(run_id)
        if run is None:
            return SignalOutcome.UNKNOWN
        tx.on_commit(lambda: run.deliver(name, payload))
        return SignalOutcome.ACCEPTED

    def cancel(self, tx: Tx, run_id: str) -> bool:
        """See `ports.runner.Runner`. A run without a process is settled at once."""
        row = tx.run(run_id)
        if row is None or row.status.is_terminal:
            return False
        for child in tx.children_of(run_id):
            if not child.detached:
                self.cancel(tx, child.id)
        live = self._runs.get(run_id)
        if live is None or row.parked:
            settle.cancel(tx, row, deps=self._deps)
        if live is not None:
            tx.on_commit(live.cancel)
        return True

    def _launch(self, turn: TurnInput, parent: "_InlineRun | None" = None) -> "_InlineRun":
        run = _InlineRun(self, self._deps, turn, self._handlers)
        if parent is not None:
            parent.on_cancel(run.cancel)
        self._runs[turn.run_id] = run
        run.task = asyncio.ensure_future(run.drive())
        run.task.add_done_callback(lambda _: self._runs.pop(turn.run_id, None))
        return run

    async def run_child(self, parent: "_InlineRun", turn: TurnInput) -> Json:
        """Run a linked child to its end; its result, or the error that its parent's call gets."""
        child = self._launch(turn, parent)
        assert child.task is not None
        await asyncio.shield(child.task)
        parent.raise_if_cancelled()
        if child.cancelled:
            raise ChildCancelled(turn.run_id)
        if child.error is not None:
            raise StepFailed(
                turn.agent,
                error_type=type(child.error).__name__,
                message=str(child.error),
                error_code=wire_code(child.error),
            )
        return child.result

    def launch(self, turn: TurnInput) -> None:
        """Start a run that nobody in memory waits for."""
        self._launch(turn)

    def _arm(self) -> None:
        self._lease_timer = self._deps.clock.call_at(self._deps.clock.now() + LEASE / 3, self._renew)

    def _renew(self) -> None:
        if self._closing:
            return

        async def renew() -> None:
            until = self._deps.clock.now() + LEASE
            try:
                await self._deps.store.transact("inline:lease", lambda tx: tx.renew_leases(self._owner, until))
                await self._sweep()
            except SignoffError:
                _log.exception("the leases of inline runs could not be renewed; trying again")

        chore = asyncio.ensure_future(renew())
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        self._arm()

    async def _sweep(self) -> None:
        """Settle inline runs whose process has not renewed its lease: nobody drives them any more."""
        now = self._deps.clock.now()

        def write(tx: Tx) -> None:
            for run in tx.runs(status=RunStatus.RUNNING, durable=False, lease_before=now, limit=500):
                if run.id not in self._runs:
                    settle.fail(
                        tx,
                        run,
                        deps=self._deps,
                        code="run_failed",
                        text="the server stopped in the middle of this turn",
                    )

        await self._deps.store.transact("inline:sweep", write)


class _InlineRun:
    """One run in memory: what it waits for, and whether it was cancelled."""

    def __init__(self, runner: InlineRunner, deps: TurnDeps, turn: TurnInput, handlers: dict[str, Handler]) -> None:
        self.runner = runner
        self.deps = deps
        self.turn = turn
        self.handlers = handlers
        self.task: asyncio.Task[None] | None = None
        self.result: Json = None
        self.error: BaseException | None = None
        self.cancelled = False
        self._cancel_callbacks: list[Callable[[], None]] = []
        self._waits: dict[str, asyncio.Future[Json]] = {}
        self._early: dict[str, Json] = {}
        self._parked = 0

    async def drive(self) -> None:
        """Run the turn and settle what it leaves, whatever becomes of it."""
        try:
            self.result = await run_turn(InlineContext(self), self.deps, self.turn)
        except RunCancelled:
            await self._settle("inline:cancelled", lambda tx, row: settle.cancel(tx, row, deps=self.deps))
        except asyncio.CancelledError:
            text = "the server stopped in the middle of this turn"
            await self._fail(ConfigurationError(text), code="run_failed")
        except ControlFlow as error:
            await self._fail(error, code="run_failed")
        except Exception as error:  # noqa: BLE001  # whatever it was, the run has to be settled
            if not isinstance(error, SignoffError):
                _log.exception("run %s failed", self.turn.run_id)
            await self._fail(error, code=wire_code(error))

    async def _fail(self, error: BaseException, *, code: str) -> None:
        self.error = error
        text = str(error) or type(error).__name__
        await self._settle("inline:failed", lambda tx, row: settle.fail(tx, row, deps=self.deps, code=code, text=text))

    async def _settle(self, label: str, how: Callable[[Tx, Run], object]) -> None:
        def write(tx: Tx) -> None:
            row = tx.run(self.turn.run_id)
            if row is not None:
                how(tx, row)

        try:
            await self.deps.store.transact(label, write)
        except SignoffError:
            _log.exception("run %s could not be settled; the sweep will", self.turn.run_id)

    # --- cancellation ---------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """The cancel is recorded: stop what can be stopped at once."""
        if self.cancelled:
            return
        self.cancelled = True
        for future in self._waits.values():
            if not future.done():
                future.set_exception(RunCancelledWait())
        for callback in self._cancel_callbacks:
            callback()
        self._cancel_callbacks.clear()

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call back when the run is cancelled; at once if it has been."""
        if self.cancelled:
            callback()
        else:
            self._cancel_callbacks.append(callback)

    def raise_if_cancelled(self) -> None:
        """Unwind if the run was cancelled."""
        if self.cancelled:
            raise RunCancelled(self.turn.run_id)

    # --- waiting --------------------------------------------------------------------------------------------

    def deliver(self, name: str, payload: Json) -> None:
        """A decision: to the wait that is there, or kept for the one that comes."""
        future = self._waits.get(name)
        if future is not None and not future.done():
            future.set_result(payload)
        else:
            self._early[name] = payload

    async def wait(self, name: str, deadline: datetime | None) -> Json:
        """Wait in memory for a decision or the deadline."""
        self.raise_if_cancelled()
        if name in self._early:
            return self._early.pop(name)
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._waits[name] = future
        timer = None
        if deadline is not None:
            timer = self.deps.clock.call_at(deadline, lambda: _expire(future, name))
        await self._mark_parked(1)
        try:
            return await future
        except RunCancelledWait:
            raise RunCancelled(self.turn.run_id) from None
        finally:
            del self._waits[name]
            if timer is not None:
                timer.cancel()
            self._parked -= 1
            if not self._parked and not self.cancelled:
                self.deps.store.transact_soon(
                    "inline:unparked", lambda tx: tx.change_run(self.turn.run_id, parked=False)
                )

    async def _mark_parked(self, by: int) -> None:
        self._parked += by
        if self._parked == 1:
            await self.deps.store.transact("inline:parked", lambda tx: tx.change_run(self.turn.run_id, parked=True))


class RunCancelledWait(Exception):
    """Ends a wait in memory because its run was cancelled."""


def _expire(future: asyncio.Future[Json], name: str) -> None:
    if not future.done():
        future.set_exception(SignalTimeout(name))


class InlineContext:
    """The loop's `Context` without a journal: every primitive does its work at once."""

    def __init__(self, run: _InlineRun) -> None:
        self._run = run
        self._deps = run.deps

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.turn.run_id

    @property
    def is_replaying(self) -> bool:
        """Never: there is nothing to replay."""
        return False

    def record(
        self, name: str, write: Callable[[Tx, T], Json], *, compute: Callable[[], Awaitable[T]]
    ) -> Awaitable[Json]:
        """See `ports.engine.Context`."""

        async def go() -> Json:
            value = await compute()
            return await self._deps.store.transact(name, lambda tx: write(tx, value))

        return _started(go())

    def dispatch(self, name: str, task: Task, *, retry: Retry) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        return _started(self._dispatch(name, task, retry))

    async def _dispatch(self, name: str, task: Task, retry: Retry) -> Json:
        handler = self._run.handlers[task.group]
        for attempt in range(1, retry.attempts + 1):
            self.raise_if_cancelled()
            info = TaskInfo(
                run_id=self.run_id,
                name=name,
                attempt=attempt,
                idempotency_key=f"{self.run_id}:{name}",
                cancelled=lambda: self._run.cancelled,
                on_cancel=self._run.on_cancel,
            )
            try:
                value = await handler(task.input, info)
                return normalise(value, what=f"checkpoint {name!r}", bytes_max=ENTRY_BYTES_MAX)
            except Exception as error:  # as the durable engine: any failure becomes StepFailed
                if attempt == retry.attempts or not is_transient(error):
                    raise StepFailed(
                        name, error_type=type(error).__name__, message=str(error), error_code=wire_code(error)
                    ) from error
            self._deps.events.emit(EventName.TOOL_RETRY, run_id=self.run_id, step=name, attempt=attempt)
            await self._deps.clock.sleep_until(
                self._deps.clock.now() + wait_before(attempt + 1, retry, self._deps.ids.jitter())
            )
        raise AssertionError("a dispatch without an attempt")

    def wait_for_signal(self, name: str, *, deadline: datetime | None = None) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        return _started(self._run.wait(name, deadline))

    def child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        del name, workflow, run_id
        return _started(self._run.runner.run_child(self._run, TurnInput.from_json(input_)))

    def start_child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        del name, workflow, run_id

        async def go() -> None:
            self._run.runner.launch(TurnInput.from_json(input_))

        return _started(go())

    def patched(self, patch_id: str) -> Awaitable[bool]:
        """Every run takes the current shape."""
        del patch_id
        return _started(_value(True))

    def deprecate_patch(self, patch_id: str) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        del patch_id
        return _started(_value(None))

    def parallel(self, branches: Sequence[Callable[[Context], Awaitable[T]]]) -> Awaitable[list[T]]:
        """See `ports.engine.Context`."""
        return _started(settle_all([branch(self) for branch in branches]))

    def now(self) -> Awaitable[datetime]:
        """See `ports.engine.Context`."""
        return _started(_value(self._deps.clock.now()))

    def raise_if_cancelled(self) -> None:
        """See `ports.engine.Context`."""
        self._run.raise_if_cancelled()

    def continue_as_new(self, input_: JsonObject) -> Never:
        """Turns never do; without a journal there is nothing to shorten."""
        del input_
        raise RunSuspended("the inline runner cannot continue as new")


async def _value(value: T) -> T:
    return value


def _started(work: Coroutine[object, object, T]) -> Awaitable[T]:
    """Begin at the call, as the durable engine does: what was launched in one tick runs together."""
    return asyncio.ensure_future(work)
