"""Replays a recorded journal against the code at hand: no model, no tool, no database (`signoff replay-check`)."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Never, TypeVar

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import (
    ChildCancelled,
    ContinueAsNew,
    ControlFlow,
    ReplayDiverged,
    RunSuspended,
    SignalTimeout,
)
from signoff.ports.engine import BRANCH_POSITIONS, Body, Context, JournalEntry, Retry, Task, in_doubt, step_failed
from signoff.ports.store import Tx
from signoff.turn.together import settle_all

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What came of one replay. On a divergence `position`, `expected` (the journal) and `found` (the code)."""

    run_id: str
    replayed: int
    position: int | None = None
    expected: str | None = None
    found: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the code at hand can go on with this run."""
        return self.position is None


async def replay(body: Body, *, run_id: str, input_: JsonObject, entries: Sequence[JournalEntry]) -> ReplayReport:
    """Run `body` over `entries` until the journal ends; the first disagreement is reported."""
    journal = _Journal(run_id, entries)
    try:
        await body(_ReplayContext(journal), input_)
    except ReplayDiverged as diverged:
        return ReplayReport(
            run_id=run_id,
            replayed=journal.replayed,
            position=diverged.position,
            expected=diverged.expected,
            found=diverged.found,
        )
    except ControlFlow:
        stopped = "end of journal"  # parked, or the journal ends here: the code could go on
    except Exception as error:  # noqa: BLE001  # a run that failed replays to its failure
        stopped = type(error).__name__
    else:
        stopped = "end"
    unread = journal.unread()
    if unread is not None:
        return ReplayReport(
            run_id=run_id,
            replayed=journal.replayed,
            position=unread.position,
            expected=f"{unread.kind}:{unread.name}",
            found=stopped,
        )
    return ReplayReport(run_id=run_id, replayed=journal.replayed)


class _EndOfJournal(RunSuspended):
    """The journal has nothing at this position."""


class _Journal:
    def __init__(self, run_id: str, entries: Sequence[JournalEntry]) -> None:
        self.run_id = run_id
        # Below 0 is how the run was undone afterwards; the body knows nothing of it.
        self._entries = {entry.position: entry for entry in entries if entry.position > 0}
        self._read: set[int] = set()

    @property
    def replayed(self) -> int:
        return len(self._read)

    def peek(self, position: int) -> JournalEntry | None:
        return self._entries.get(position)

    def take(self, position: int, kind: str, name: str) -> JournalEntry | None:
        entry = self._entries.get(position)
        if entry is None:
            return None
        self._read.add(position)
        if (entry.kind, entry.name) != (kind, name):
            raise ReplayDiverged(
                run_id=self.run_id,
                position=position,
                expected=f"{entry.kind}:{entry.name}",
                found=f"{kind}:{name}",
            )
        return entry

    def unread(self) -> JournalEntry | None:
        left = [position for position in self._entries if position not in self._read]
        return self._entries[min(left)] if left else None


class _Later(Awaitable[T]):
    """A primitive that has its position; its outcome is looked at once it is awaited."""

    def __init__(self, work: Callable[[], Coroutine[object, object, T]]) -> None:
        self._work = work

    def __await__(self) -> Generator[object, object, T]:
        return (yield from self._work().__await__())


class _ReplayContext:
    """`ports.engine.Context` that only reads. Nothing it is handed is ever called."""

    def __init__(self, journal: _Journal, first: int = 1) -> None:
        self._journal = journal
        self._next = first

    @property
    def run_id(self) -> str:
        return self._journal.run_id

    @property
    def is_replaying(self) -> bool:
        return True

    def record(
        self, name: str, write: Callable[[Tx, T], Json], *, compute: Callable[[], Awaitable[T]]
    ) -> Awaitable[Json]:
        del write, compute
        entry = self._take("record", name)
        return _Later(lambda: _outcome(name, entry))

    def dispatch(self, name: str, task: Task, *, retry: Retry) -> Awaitable[Json]:
        del task, retry
        entry = self._take("dispatch", name)
        return _Later(lambda: _outcome(name, entry))

    def wait_for_signal(self, name: str, *, deadline: datetime | None = None) -> Awaitable[Json]:
        del deadline
        self._take("deadline", name)
        entry = self._take("signal", name)
        return _Later(lambda: _outcome(name, entry))

    def child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[Json]:
        del workflow, input_
        begun = self._take("child", name)
        ended = self._take("signal", f"child:{run_id}")
        return _Later(lambda: _child_outcome(name, run_id, begun, ended))

    def start_child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[None]:
        del workflow, run_id, input_
        entry = self._take("start_child", name)
        return _Later(lambda: _nothing(name, entry))

    def patched(self, patch_id: str) -> Awaitable[bool]:
        there = self._journal.peek(self._next)
        if there is not None and there.kind != "patch":
            return _Later(lambda: _value(False))
        self._take("patch", patch_id)
        return _Later(lambda: _value(True))

    def deprecate_patch(self, patch_id: str) -> Awaitable[None]:
        there = self._journal.peek(self._next)
        if there is not None and there.kind == "patch":
            self._take("patch", patch_id)
        return _Later(lambda: _value(None))

    def on_undo(self, name: str, task: Task, *, retry: Retry) -> None:
        """A replay undoes nothing."""

    def parallel(self, branches: Sequence[Callable[[Context], Awaitable[T]]]) -> Awaitable[list[T]]:
        self._take("parallel", str(len(branches)))
        contexts = [
            _ReplayContext(self._journal, self._next + number * BRANCH_POSITIONS) for number in range(len(branches))
        ]
        self._next += len(branches) * BRANCH_POSITIONS
        pairs = list(zip(branches, contexts, strict=True))
        return _Later(lambda: settle_all([branch(context) for branch, context in pairs]))

    def now(self) -> Awaitable[datetime]:
        entry = self._take("now", "")
        return _Later(lambda: _instant(entry))

    def raise_if_cancelled(self) -> None:
        """A replay is not cancelled."""

    def continue_as_new(self, input_: JsonObject) -> Never:
        raise ContinueAsNew(input_)

    def _take(self, kind: str, name: str) -> JournalEntry | None:
        position = self._next
        self._next += 1
        return self._journal.take(position, kind, name)


async def _outcome(name: str, entry: JournalEntry | None) -> Json:
    """What a replay by the engine returns or raises for this entry."""
    match entry:
        case None | JournalEntry(state="started" | "retrying"):
            raise _EndOfJournal(name)
        case JournalEntry(state="failed", body=body):
            raise step_failed(name, body)
        case JournalEntry(state="doubt", body=body):
            raise in_doubt(name, body)
        case JournalEntry(state="timeout"):
            raise SignalTimeout(name)
        case JournalEntry(body=value):
            return value


async def _child_outcome(name: str, run_id: str, begun: JournalEntry | None, ended: JournalEntry | None) -> Json:
    if begun is not None and begun.state == "failed":
        raise step_failed(name, begun.body)
    outcome = await _outcome(name, ended)
    match outcome:
        case {"status": "completed", "output": output}:
            return output
        case {"status": "completed"}:
            return None
        case {"status": "cancelled"}:
            raise ChildCancelled(run_id)
        case {"error": error}:
            raise step_failed(name, error)
        case _:
            raise step_failed(name, outcome)


async def _nothing(name: str, entry: JournalEntry | None) -> None:
    await _outcome(name, entry)


async def _instant(entry: JournalEntry | None) -> datetime:
    return datetime.fromisoformat(str(await _outcome("now", entry)))


async def _value(value: T) -> T:
    return value
