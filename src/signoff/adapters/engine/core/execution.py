"""One claimed run in this process: its journal, its right to write, and what stops it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol, TypeVar, assert_never

from signoff.adapters.engine.core import journal
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.control import Refused, Released, Why
from signoff.adapters.engine.core.groups import Groups
from signoff.adapters.engine.core.journal import Entry, Hold, Kind, Mark, State
from signoff.adapters.engine.core.lifecycle import Lifecycle
from signoff.domain.jsonvalue import Json
from signoff.errors import ControlFlow, LeaseLost, ReplayDiverged, RunCancelled, StoreBusy
from signoff.ports.clock import Clock
from signoff.ports.engine import EngineLimits, Retry, Task
from signoff.ports.ids import Ids
from signoff.ports.store import Store, Tx

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Dispatch(Protocol):
    """Has a worker group do a step, and returns its value; see `ports.engine.Context.dispatch`."""

    def __call__(
        self, execution: "Execution", position: int, entry: Entry | None, name: str, task: Task, retry: Retry
    ) -> Coroutine[object, object, Json]:
        """`entry` is what the journal holds at `position`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What executions use of the engine."""

    store: Store
    clock: Clock
    ids: Ids
    limits: EngineLimits
    groups: Groups
    lifecycle: Lifecycle
    dispatch: "Dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """What the body said with `Context.on_undo`; `before` is the position that came next."""

    before: int
    name: str
    task: Task
    retry: Retry


@dataclass(slots=True, kw_only=True, eq=False)
class Execution:
    """From the claim of a run until it has left memory. Shared by the run's contexts; one event loop.

    `stop` is what every later primitive raises (the same object). `parked`: a wait found nothing. `undoing`: the
    body is replayed only to learn its `undos`, until it is `cut` short where the journal has no outcome for it.
    """

    run_id: str
    services: Services
    fence: int = 0
    namespace: str = ""
    tip: int = 0
    stop: ControlFlow | None = None
    cancelled: bool = False
    releasing: bool = False
    aborted: bool = False
    body: "asyncio.Task[Json] | None" = None
    parked: bool = False
    undoing: bool = False
    cut: bool = False
    undos: list[Undo] = field(default_factory=list)
    again: bool = False
    entries: Mapping[int, Entry] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    on_cancel: list[Callable[[], None]] = field(default_factory=list)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    _hold: Hold | None = None
    _active: int = 0
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def hold(self) -> Hold:
        """The right to write, as of now: take it when the write is submitted."""
        hold = self._hold
        if hold is None or hold.tip != self.tip or hold.fence != self.fence:
            hold = self._hold = Hold(run_id=self.run_id, fence=self.fence, tip=self.tip, undoing=self.undoing)
        return hold

    # what the journal says ----------------------------------------------------------------------------------

    def read(self, position: int, kind: Kind, name: str) -> Entry | None:
        """The entry at `position`, or None; raises `ReplayDiverged` if it belongs to something else."""
        entry = self.entries.get(position)
        self.unread.discard(position)
        if entry is not None and (entry.kind != kind or entry.name != name):
            self.diverge(position, expected=f"{entry.kind}:{entry.name}", found=f"{kind}:{name}")
        return entry

    def finish(self) -> None:
        """The body has returned: a journal that goes on says that the code has changed."""
        if self.unread:
            entry = self.entries[min(self.unread)]
            self.diverge(entry.position, expected=f"{entry.kind}:{entry.name}", found="end")

    def diverge(self, position: int, *, expected: str, found: str) -> NoReturn:
        """Poison the run: from here on nothing is journaled."""
        self.stop = ReplayDiverged(run_id=self.run_id, position=position, expected=expected, found=found)
        raise self.stop

    # what stops it ------------------------------------------------------------------------------------------

    def raise_if_stopped(self) -> None:
        """Raise what stops this run, if anything does."""
        if self.stop is not None:
            raise self.stop
        if self.cancelled:
            self.stop = RunCancelled(f"run {self.run_id!r} was cancelled")
            raise self.stop
        if self.releasing:
            self.stop = Released(f"run {self.run_id!r} is released")
            raise self.stop

    def raise_if_diverged(self) -> None:
        """After a divergence nothing is written, also not by a sibling that was under way."""
        if isinstance(self.stop, ReplayDiverged):
            raise self.stop

    def cancel(self) -> None:
        """The run was cancelled (committed). Whoever asked to be told is told, in the event loop.

        What undoes it is not stopped: the cancel is the reason for it.
        """
        if self.cancelled or self.undoing:
            return
        self.cancelled = True
        self.interrupted.set()
        callbacks, self.on_cancel = self.on_cancel, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("a cancel callback of run %r raised", self.run_id)

    def call_on_cancel(self, callback: Callable[[], None]) -> None:
        """Call back when the run is cancelled; at once if it is."""
        if self.cancelled:
            callback()
        else:
            self.on_cancel.append(callback)

    def begin_undo(self) -> None:
        """The run was claimed to be undone; a cancel that was heard of before that has done what it should."""
        self.undoing = True
        self.cancelled = False
        if not self.releasing:
            self.interrupted.clear()

    def release(self) -> None:
        """Let the run go at its next primitive; waits for time or for a free worker end at once."""
        self.releasing = True
        self.interrupted.set()

    def busy(self, error: StoreBusy) -> ControlFlow:
        """The database refuses for now. Not an outcome of any step: the run is let go, and recovered later."""
        self.stop = self.stop or Released(f"the store is busy: {error}")
        return self.stop

    def abort(self) -> None:
        """Let the run go by force: whoever awaits in its body is cancelled."""
        self.aborted = True
        if self.body is not None:
            self.body.cancel()

    def is_aborted(self) -> bool:
        """Whether a `CancelledError` that arrives now was asked for, rather than raised by the code that ran."""
        task = asyncio.current_task()
        return self.aborted or (task is not None and task.cancelling() > 0)

    # writes -------------------------------------------------------------------------------------------------

    async def commit(self, label: str, work: Callable[[Tx], T]) -> T:
        """A transaction of this run. What stops the run stops it here; an ordinary error is the caller's.

        `work` raises `Refused` where a guarded statement wrote nothing.
        """
        self.raise_if_diverged()
        try:
            return await self.services.store.transact(label, work)
        except Refused as refused:
            self._stopped_by(refused)
        except StoreBusy as busy:
            raise self.busy(busy) from busy

    def commit_soon(self, label: str, write: Callable[[Tx], bool]) -> None:
        """A write that nobody waits for. Refused ones need no report: whatever comes next is refused as well."""
        self.raise_if_diverged()

        def work(tx: Tx) -> None:
            write(tx)

        self.services.store.transact_soon(label, work)

    async def append(self, mark: Mark) -> None:
        """Journal a position, durably."""
        hold = self.hold

        def work(tx: Tx) -> None:
            hold.append(connection_of(tx), mark)

        await self.commit(f"{mark.kind} {mark.name}", work)

    def append_soon(self, mark: Mark) -> None:
        """Journal a position that the body may go on with before it is durable (see `journal.Hold`)."""
        hold = self.hold
        self.commit_soon(f"{mark.kind} {mark.name}", lambda tx: journal.append(connection_of(tx), hold, mark))
        if mark.state is not State.STARTED:
            self.tip = mark.position

    async def change(self, mark: Mark, *, late: bool = False) -> None:
        """Change a dispatch's position, durably.

        It rests on nothing but its start, so a result that got lost beside it does not put it in doubt.
        """
        hold = replace(self.hold, tip=0)

        def work(tx: Tx) -> None:
            if not journal.change(connection_of(tx), hold, mark, late=late):
                raise journal.refusal(connection_of(tx), hold)

        await self.commit(f"{mark.kind} {mark.name} {mark.state}", work)

    def change_soon(self, mark: Mark, *, late: bool = False) -> None:
        """As `change`, with a result that the body may go on with before it is durable."""
        hold = self.hold
        label = f"{mark.kind} {mark.name} {mark.state}"
        self.commit_soon(label, lambda tx: journal.change(connection_of(tx), hold, mark, late=late))
        self.tip = mark.position

    def _stopped_by(self, refused: Refused) -> NoReturn:
        stop: ControlFlow
        match refused.why:
            case Why.LOST:
                stop = LeaseLost(f"run {self.run_id!r} is driven by another worker, or has ended")
            case Why.CANCELLED:
                self.cancel()
                stop = RunCancelled(f"run {self.run_id!r} was cancelled")
            case Why.GAP:
                stop = Released(f"run {self.run_id!r} lost a result that was not durable yet")
            case _:
                assert_never(refused.why)
        self.stop = self.stop or stop
        raise self.stop from None

    # what is under way --------------------------------------------------------------------------------------

    def enter(self) -> None:
        """A primitive begins."""
        self._active += 1
        self._quiet.clear()

    def leave(self) -> None:
        """A primitive has ended."""
        self._active -= 1
        if self._active == 0:
            self._quiet.set()

    async def quiet(self) -> None:
        """Return once no primitive is under way: a run parks or ends only after every sibling has settled."""
        if self._active:
            await self._quiet.wait()
