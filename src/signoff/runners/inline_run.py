"""One run in the memory of this process, and the `Context` without a journal that its turn is run on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Never, Protocol, TypeVar

from signoff.domain.jsonvalue import Json, JsonObject, normalise
from signoff.domain.run import Run
from signoff.errors import (
    ConfigurationError,
    ControlFlow,
    RunCancelled,
    RunSuspended,
    SignalTimeout,
    SignoffError,
    StepFailed,
    is_transient,
)
from signoff.ports.engine import Context, Handler, Retry, Task, TaskInfo
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.turn import settle
from signoff.turn.deps import TurnDeps
from signoff.turn.failure import wire_code
from signoff.turn.input import TurnInput
from signoff.turn.loop import run_turn
from signoff.turn.together import settle_all

_log = logging.getLogger("signoff.inline")

T = TypeVar("T")

ENTRY_BYTES_MAX = 1024 * 1024


class Children(Protocol):
    """Whoever starts the runs that a run delegates to."""

    async def run_child(self, parent: "InlineRun", turn: TurnInput) -> Json:
        """Run a linked child to its end. Raises `ChildCancelled`, `StepFailed`."""
        ...

    def launch(self, turn: TurnInput) -> None:
        """Start a run that nobody in memory waits for."""
        ...


class InlineRun:
    """One run in memory: what it waits for, and whether it was cancelled."""

    def __init__(self, children: "Children", deps: TurnDeps, turn: TurnInput, handlers: Mapping[str, Handler]) -> None:
        self.children = children
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
                future.set_exception(WaitCancelled())
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
        except WaitCancelled:
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


class WaitCancelled(Exception):
    """Ends a wait in memory because its run was cancelled."""


def _expire(future: asyncio.Future[Json], name: str) -> None:
    if not future.done():
        future.set_exception(SignalTimeout(name))


class InlineContext:
    """The loop's `Context` without a journal: every primitive does its work at once."""

    def __init__(self, run: InlineRun) -> None:
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
                is_current=lambda _tx: True,  # nobody else ever drives an inline run
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
                self._deps.clock.now() + retry.wait_after(attempt, self._deps.ids.jitter())
            )
        raise AssertionError("a dispatch without an attempt")

    def wait_for_signal(self, name: str, *, deadline: datetime | None = None) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        return _started(self._run.wait(name, deadline))

    def child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        del name, workflow, run_id
        return _started(self._run.children.run_child(self._run, TurnInput.from_json(input_)))

    def start_child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        del name, workflow, run_id

        async def go() -> None:
            self._run.children.launch(TurnInput.from_json(input_))

        return _started(go())

    def patched(self, patch_id: str) -> Awaitable[bool]:
        """Every run takes the current shape."""
        del patch_id
        return _started(_value(True))

    def deprecate_patch(self, patch_id: str) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        del patch_id
        return _started(_value(None))

    def on_undo(self, name: str, task: Task, *, retry: Retry) -> None:
        """Not kept: only a cancel that compensates asks for it, and a runner's cancel never does."""
        del name, task, retry

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
