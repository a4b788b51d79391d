"""What a run's body sees: positions taken at the call, everything else once it is awaited."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from datetime import datetime
from typing import Generic, Never, TypeVar

from signoff.adapters.engine.core.codec import NULL, failure_of, load_value, store_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution, Undo
from signoff.adapters.engine.core.journal import Entry, Kind, Mark, State
from signoff.adapters.engine.core.waiting import ChildPlan, WaitPlan, join_child, start_detached, wait
from signoff.domain.jsonvalue import Json, JsonObject, encode
from signoff.errors import ContinueAsNew, PositionsExhausted, RunCancelled, RunSuspended, StoreBusy, gravity
from signoff.ports.engine import BRANCH_POSITIONS, Context, Retry, Task, step_failed
from signoff.ports.store import Tx

T = TypeVar("T")

BLOCK = BRANCH_POSITIONS

#: The last position of a run's main line; as far as JavaScript and every database count exactly.
POSITION_MAX = 2**53 - 1


class Later(Awaitable[T], Generic[T]):
    """A primitive that has its position. The work begins when it is awaited, once."""

    __slots__ = ("_execution", "_work")

    def __init__(self, execution: Execution, work: Callable[[], Coroutine[object, object, T]]) -> None:
        self._execution = execution
        self._work: Callable[[], Coroutine[object, object, T]] | None = work

    def __await__(self) -> Generator[object, object, T]:
        work, self._work = self._work, None
        if work is None:
            raise RuntimeError("a primitive can be awaited only once")
        self._execution.enter()
        try:
            return (yield from work().__await__())
        finally:
            self._execution.leave()


class EngineContext:
    """`ports.engine.Context`. The main line and each branch of a `parallel` have one, over one `Execution`.

    A wait that finds nothing stops its own context only: branches beside it go on.
    """

    def __init__(self, execution: Execution, *, first: int = 1, last: int = POSITION_MAX) -> None:
        self._execution = execution
        self._next = first
        self._last = last
        self._suspended: RunSuspended | None = None

    @property
    def run_id(self) -> str:
        """See `ports.engine.Context`."""
        return self._execution.run_id

    @property
    def is_replaying(self) -> bool:
        """See `ports.engine.Context`."""
        return self._next in self._execution.entries

    def record(
        self,
        name: str,
        write: Callable[[Tx, T], Json],
        *,
        compute: Callable[[], Awaitable[T]],
    ) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        position, entry = self._take(Kind.RECORD, name)
        return self._later(entry, lambda: self._record(position, entry, name, write, compute))

    def dispatch(self, name: str, task: Task, *, retry: Retry) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        position, entry = self._take(Kind.DISPATCH, name)
        dispatch = self._execution.services.dispatch
        work = lambda: self._suspending(dispatch(self._execution, position, entry, name, task, retry))  # noqa: E731
        return self._later(entry, work)

    def wait_for_signal(self, name: str, *, deadline: datetime | None = None) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        position, begun = self._take(Kind.DEADLINE, name)
        _, outcome = self._take(Kind.SIGNAL, name)
        plan = WaitPlan(position=position, name=name, deadline=deadline, begun=begun, outcome=outcome)
        return self._later(outcome, lambda: self._suspending(wait(self._execution, plan)))

    def child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[Json]:
        """See `ports.engine.Context`."""
        position, begun = self._take(Kind.CHILD, name)
        _, outcome = self._take(Kind.SIGNAL, f"child:{run_id}")
        plan = ChildPlan(
            position=position, name=name, workflow=workflow, run_id=run_id, input=input_, begun=begun, outcome=outcome
        )
        known = begun if begun is not None and begun.state == State.FAILED else outcome
        return self._later(known, lambda: self._suspending(join_child(self._execution, plan)))

    def start_child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        position, begun = self._take(Kind.START_CHILD, name)
        plan = ChildPlan(
            position=position, name=name, workflow=workflow, run_id=run_id, input=input_, begun=begun, outcome=None
        )
        return self._later(begun, lambda: start_detached(self._execution, plan))

    def patched(self, patch_id: str) -> Awaitable[bool]:
        """See `ports.engine.Context`."""
        self._raise_if_stopped()
        there = self._execution.entries.get(self._next)
        if there is not None and there.kind != Kind.PATCH:
            return Later(self._execution, lambda: _just(False))
        position, entry = self._take(Kind.PATCH, patch_id)
        return self._later(entry, lambda: self._mark_once(position, entry, Kind.PATCH, patch_id, True))

    def deprecate_patch(self, patch_id: str) -> Awaitable[None]:
        """See `ports.engine.Context`."""
        self._raise_if_stopped()
        there = self._execution.entries.get(self._next)
        if there is not None and there.kind == Kind.PATCH:
            self._take(Kind.PATCH, patch_id)
        return Later(self._execution, lambda: _just(None))

    def on_undo(self, name: str, task: Task, *, retry: Retry) -> None:
        """See `ports.engine.Context`."""
        self._execution.undos.append(Undo(before=self._next, name=name, task=task, retry=retry))

    def parallel(self, branches: Sequence[Callable[[Context], Awaitable[T]]]) -> Awaitable[list[T]]:
        """See `ports.engine.Context`. Takes one position, and a block of 1,024 after it for each branch."""
        name = str(len(branches))
        position, entry = self._take(Kind.PARALLEL, name)
        contexts = [self._branch() for _ in branches]

        async def run() -> list[T]:
            if entry is None:
                self._mark(position, Kind.PARALLEL, name, NULL)
            return await self._settle_all(branches, contexts)

        return self._later(entry, run)

    def now(self) -> Awaitable[datetime]:
        """See `ports.engine.Context`."""
        position, entry = self._take(Kind.NOW, "")

        async def run() -> datetime:
            if entry is not None:
                return datetime.fromisoformat(str(entry.body))
            instant = self._execution.services.clock.now()
            self._mark(position, Kind.NOW, "", encode(instant.isoformat()))
            return instant

        return self._later(entry, run)

    def raise_if_cancelled(self) -> None:
        """See `ports.engine.Context`."""
        if self._execution.cancelled:
            self._execution.raise_if_stopped()
        if self._execution.undoing and not self.is_replaying:
            raise self._cut()

    def continue_as_new(self, input_: JsonObject) -> Never:
        """See `ports.engine.Context`."""
        self._raise_if_stopped()
        raise ContinueAsNew(input_)

    # positions ----------------------------------------------------------------------------------------------

    def _take(self, kind: Kind, name: str) -> tuple[int, Entry | None]:
        self._raise_if_stopped()
        position = self._next
        if position > self._last:
            raise PositionsExhausted(self.run_id, BLOCK)
        self._next += 1
        return position, self._execution.read(position, kind, name)

    def _branch(self) -> "EngineContext":
        first, last = self._next, self._next + BLOCK - 1
        if last > self._last:
            raise PositionsExhausted(self.run_id, BLOCK)
        self._next = last + 1
        return EngineContext(self._execution, first=first, last=last)

    def _raise_if_stopped(self) -> None:
        self._execution.raise_if_stopped()
        if self._suspended is not None:
            raise self._suspended

    # what is behind the awaitables --------------------------------------------------------------------------

    def _later(self, known: Entry | None, work: Callable[[], Coroutine[object, object, T]]) -> Later[T]:
        """`work`, once it is awaited; a run that is undone gets only what is `known`, nothing is executed for it.

        Each primitive says so by itself: branches of which the journal knows more go on.
        """

        async def cut() -> T:
            raise self._cut()

        if self._execution.undoing and (known is None or known.state in (State.STARTED, State.RETRYING)):
            return Later(self._execution, cut)
        return Later(self._execution, work)

    def _cut(self) -> RunCancelled:
        self._execution.cut = True
        return RunCancelled(f"run {self.run_id!r} was cancelled")

    async def _record(
        self,
        position: int,
        entry: Entry | None,
        name: str,
        write: Callable[[Tx, T], Json],
        compute: Callable[[], Awaitable[T]],
    ) -> Json:
        if entry is not None:
            if entry.state == State.FAILED:
                raise step_failed(name, entry.body)
            return entry.body
        execution = self._execution
        bytes_max = execution.services.limits.entry_bytes_max
        try:
            value = await compute()
            at = execution.services.clock.now()
            hold = execution.hold

            def work(tx: Tx) -> str:
                body = store_value(name, write(tx, value), bytes_max=bytes_max)
                mark = Mark(position=position, kind=Kind.RECORD, name=name, state=State.DONE, body=body, at=at)
                # Last, so that one statement both asks whether the run is still ours and writes the checkpoint:
                # if it is not, what `write` did rolls back with it.
                hold.append(connection_of(tx), mark)
                return body

            return load_value(await execution.commit(name, work))
        except StoreBusy as busy:
            raise execution.busy(busy) from busy
        except asyncio.CancelledError as error:
            if execution.is_aborted():
                raise
            failure = failure_of(error)
        except Exception as error:  # noqa: BLE001  # whatever it was, it is this checkpoint's outcome
            failure = failure_of(error)
        at = execution.services.clock.now()
        body = encode(failure)
        await execution.append(
            Mark(position=position, kind=Kind.RECORD, name=name, state=State.FAILED, body=body, at=at)
        )
        raise step_failed(name, failure)

    async def _suspending(self, work: Coroutine[object, object, Json]) -> Json:
        try:
            return await work
        except RunSuspended as suspended:
            self._suspended = suspended
            raise

    def _mark(self, position: int, kind: Kind, name: str, body: str) -> None:
        at = self._execution.services.clock.now()
        self._execution.append_soon(Mark(position=position, kind=kind, name=name, state=State.DONE, body=body, at=at))

    async def _mark_once(self, position: int, entry: Entry | None, kind: Kind, name: str, value: T) -> T:
        if entry is None:
            self._mark(position, kind, name, NULL)
        return value

    async def _settle_all(
        self, branches: Sequence[Callable[[Context], Awaitable[T]]], contexts: Sequence["EngineContext"]
    ) -> list[T]:
        if len(branches) == 1:
            # Nearly every step has one call, and a task of its own would change nothing for it.
            try:
                return [await branches[0](contexts[0])]
            except RunSuspended as suspended:
                self._suspended = suspended
                raise

        async def run(branch: Callable[[Context], Awaitable[T]], context: EngineContext) -> T:
            return await branch(context)

        tasks = [asyncio.create_task(run(*pair)) for pair in zip(branches, contexts, strict=True)]
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            # The process lets the run go by force: nothing of the batch may go on without its parent.
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            raise
        errors = [_error_of(task) for task in tasks]
        worst = min((error for error in errors if error is not None), key=gravity, default=None)
        if worst is not None:
            if isinstance(worst, RunSuspended):
                self._suspended = worst
            raise worst
        return [task.result() for task in tasks]


async def _just(value: T) -> T:
    return value


def _error_of(task: "asyncio.Task[T]") -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
