"""The durable engine: what a run's body sees (`Context`), and what the outside does to runs (`Engine`).

Semantics: every primitive of `Context` is a plain function that takes its position when it is called, before
its first await. A replay returns what the journal holds at that position; kind and name are compared first.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Never, Protocol, TypeVar

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InDoubt, StepFailed
from signoff.ports.store import Tx

T = TypeVar("T")

#: How many positions each branch of a `parallel` has for itself, right after the `parallel`'s own.
BRANCH_POSITIONS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a dispatched step is tried, and what a crash in the middle of it means.

    Waits between attempts grow from `backoff` by `factor` up to `backoff_max`, jittered to 50-100 %.
    `repeatable`: a step that was started and lost its process runs again (as the next attempt); otherwise it
    is in doubt and `InDoubt` is raised in the body, journaled like any other outcome.
    `marked_first`: the start mark is durable, and the run not cancelled, before the work begins. A step that is
    not repeatable always is; set it for one that may be repeated but has an effect.
    """

    attempts: int = 1
    backoff: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    backoff_max: timedelta = timedelta(seconds=30)
    repeatable: bool = True
    marked_first: bool = False

    def wait_after(self, failures: int, jitter: float) -> timedelta:
        """How long to wait after the `failures`-th failure (1, 2, …); `jitter` in [0, 1) comes from the ids port."""
        try:
            grown = self.backoff * self.factor ** (failures - 1)
        except OverflowError:
            grown = self.backoff_max
        return min(grown, self.backoff_max) * (0.5 + jitter / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work for a worker group ("llm", "tools"): `input` is all that a worker needs to find the rest by itself."""

    group: str
    input: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """What a group's handler is told about the attempt it serves.

    `idempotency_key` is the same on every attempt. `cancelled()` turns true when the run is cancelled.
    `on_cancel(callback)` calls back in the event loop when that happens (at once, if it has). `is_current(tx)` says
    whether the run still goes by this attempt: a worker that was overtaken must not speak for the run.
    """

    run_id: str
    name: str
    attempt: int
    idempotency_key: str
    cancelled: Callable[[], bool]
    on_cancel: Callable[[Callable[[], None]], None]
    is_current: Callable[[Tx], bool]


class Handler(Protocol):
    """Serves one group's tasks. Errors: see `Retryable` and `StepFailed`; control flow passes through."""

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        """Do the work and return what the journal keeps.

        Raises:
            ModelError: with `transient` set, the retry policy applies; any other exception fails the step.
        """
        ...


async def nothing() -> None:
    """For a `Context.record` that has nothing to compute."""


class Context(Protocol):
    """What the body of a run may do. One instance a run and execution; not shared between tasks."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def is_replaying(self) -> bool:
        """Whether the next position is already in the journal. For diagnostics only, never to steer."""
        ...

    def record(
        self,
        name: str,
        write: Callable[[Tx, T], Json],
        *,
        compute: Callable[[], Awaitable[T]],
    ) -> Awaitable[Json]:
        """Bookkeeping: what `write` does and the checkpoint that says so commit together.

        `compute` may await but only reads; its result is handed to `write`, which touches only `Tx`. An
        ordinary exception from either is journaled and raised as `StepFailed`, the same on a replay;
        `StoreBusy` is not journaled (it is tried again by whoever recovers the run).
        """
        ...

    def dispatch(self, name: str, task: Task, *, retry: Retry) -> Awaitable[Json]:
        """A step for a worker group: a start mark with the attempt's number, the work, its result.

        Raises:
            StepFailed: the step failed for good; the same on a replay, never tried again by one.
            InDoubt: see `Retry.repeatable`.
        """
        ...

    def wait_for_signal(self, name: str, *, deadline: datetime | None = None) -> Awaitable[Json]:
        """The payload of the signal, waiting for it without memory if it has not come. Takes two positions.

        A signal that came before the wait is taken. Outcome and timeout are journaled, so a late signal
        never changes a branch that was taken.

        Raises:
            SignalTimeout: `deadline` (aware UTC, journaled by the first execution) has passed.
        """
        ...

    def child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[Json]:
        """Start a linked child run (idempotent by id) and wait for its result without memory. Two positions.

        Raises:
            StepFailed: the child failed, or could not be started.
            ChildCancelled: the child was cancelled on its own.
        """
        ...

    def start_child(self, name: str, *, workflow: str, run_id: str, input_: JsonObject) -> Awaitable[None]:
        """Start a detached run: it survives this one's end and cancellation."""
        ...

    def patched(self, patch_id: str) -> Awaitable[bool]:
        """True for a fresh run (a marker is journaled); False for one whose history predates the change here,
        and then the position is given back."""
        ...

    def deprecate_patch(self, patch_id: str) -> Awaitable[None]:
        """Take the marker's position if the journal has it; writes none."""
        ...

    def on_undo(self, name: str, task: Task, *, retry: Retry) -> None:
        """Say how to undo what the body does here, for a cancel that compensates (see `Engine.cancel`).

        Takes no position and writes nothing: each execution, replays included, says it again. Said before the
        step it belongs to, it also covers one whose outcome nobody knows, and must bear that nothing happened;
        said after, it covers only a step whose result was journaled.
        """
        ...

    def parallel(self, branches: Sequence[Callable[["Context"], Awaitable[T]]]) -> Awaitable[list[T]]:
        """Run the branches together, each on a `Context` with positions of its own, in call order.

        Every branch settles before anything propagates; then diverged > lease lost > cancelled > suspended >
        an ordinary error (the first in call order).
        """
        ...

    def now(self) -> Awaitable[datetime]:
        """The instant of the first execution, aware UTC."""
        ...

    def raise_if_cancelled(self) -> None:
        """Raise `RunCancelled` if the run was cancelled. Takes no position."""
        ...

    def continue_as_new(self, input_: JsonObject) -> Never:
        """End this run and start its successor ``<id>~<n>`` with a fresh journal."""
        ...


Body = Callable[[Context, JsonObject], Awaitable[Json]]
"""A workflow: its result is journaled as the run's output."""


class SignalOutcome(StrEnum):
    """What became of a signal. Only `ACCEPTED` reaches the run."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    TERMINAL = "terminal"
    UNKNOWN = "unknown"


class EngineStatus(StrEnum):
    """The engine's own view of a run (people see `RunStatus`)."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for the engine."""
        return self in (self.COMPLETED, self.FAILED, self.CANCELLED, self.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """A run as the engine knows it. `waits` are the signal names it is parked on; instants aware UTC."""

    id: str
    workflow: str
    status: EngineStatus
    input: JsonObject
    output: Json = None
    error_type: str | None = None
    error: str | None = None
    error_code: str | None = None
    parent_id: str | None = None
    namespace: str = ""
    fence: int = 0
    crashes: int = 0
    owner: str | None = None
    lease_until: datetime | None = None
    wake_at: datetime | None = None
    waits: tuple[str, ...] = ()
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One position of a run's journal. `body` is the value, or the error as ``{"type", "message", "code"?}``."""

    position: int
    kind: str
    name: str
    state: str
    attempt: int
    body: Json
    at: datetime


def step_failed(name: str, body: Json) -> StepFailed:
    """The error of an entry that is `failed`, as every execution and every replay raises it."""
    fields = body if isinstance(body, dict) else {}
    code = fields.get("code")
    return StepFailed(
        name,
        error_type=str(fields.get("type", "Exception")),
        message=str(fields.get("message", "")),
        error_code=code if isinstance(code, str) else None,
    )


def in_doubt(name: str, body: Json) -> InDoubt:
    """The error of an entry whose outcome nobody knows (``{"started_at", "attempt"}``)."""
    fields = body if isinstance(body, dict) else {}
    attempt = fields.get("attempt")
    return InDoubt(
        name,
        started_at=str(fields.get("started_at", "")),
        attempt=attempt if isinstance(attempt, int) else 1,
    )


class RunObserver(Protocol):
    """Told by the engine, inside its own transaction, when a run ends otherwise than by its body's own writes.

    So run row, thread, stream and cards are settled together with the engine's status.
    """

    def ended(self, tx: Tx, run_id: str, status: EngineStatus, error: BaseException | None, error_text: str) -> None:
        """The run is now `failed`, `cancelled` or `dead`. Idempotent: the body may have settled it before."""
        ...

    def parked(self, tx: Tx, run_id: str, parked: bool) -> None:
        """The run left memory to wait for people (True), or goes on (False)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Bounds and patience. Sizes in bytes of JSON text.

    `concurrency` maps a worker group ("runs", "llm", "tools") to how many of its tasks run at once here.
    A run whose worker dies `crashes_max` times becomes `dead`.
    """

    entry_bytes_max: int = 1024 * 1024
    lease: timedelta = timedelta(seconds=15)
    sweep: timedelta = timedelta(seconds=5)
    crashes_max: int = 10
    concurrency: Mapping[str, int] = field(default_factory=lambda: {"runs": 256, "llm": 64, "tools": 64})


class Engine(Protocol):
    """Makes runs survive.

    The methods with a `tx` belong into a transaction of the store; the run is woken after it commits.
    """

    def register(self, workflow: str, body: Body) -> None:
        """Serve runs of this workflow here."""
        ...

    def serve(self, group: str, handler: Handler) -> None:
        """Serve tasks of this worker group here."""
        ...

    async def open(self, observer: RunObserver, *, drive: bool = True) -> None:
        """Connect and begin to drive runs: pending ones, ones whose wait is settled, ones whose worker died.

        Without `drive` nothing is executed here; runs can be started, signalled and cancelled all the same, and
        are driven by a process that drives.

        Reads an index, not the parked runs. One broken run is set aside, the rest goes on.
        """
        ...

    async def drain(self) -> None:
        """Take nothing new, let what runs reach a checkpoint boundary or park, write nothing afterwards."""
        ...

    def start(
        self,
        tx: Tx,
        *,
        run_id: str,
        workflow: str,
        input_: JsonObject,
        parent_id: str | None = None,
        namespace: str = "",
    ) -> bool:
        """Write the run; it is driven after the commit. False: a run with this id exists (whatever its state).

        Raises:
            UnknownWorkflow: before a row exists.
        """
        ...

    def signal(self, tx: Tx, run_id: str, name: str, payload: Json, *, dedup_key: str) -> SignalOutcome:
        """Leave a signal for the run; the first accepted one wins per `dedup_key`. May come before the wait."""
        ...

    def cancel(self, tx: Tx, run_id: str, *, compensate: bool = False) -> bool:
        """Cancel the run and its linked children. Needs nothing but their own rows.

        A run that nobody executes ends at once (the observer settles it in this transaction); one that is
        executed sees it at its next primitive. False: it had ended already, or is unknown.

        With `compensate` each of them stays `cancelling` until it is undone, children before their parents: the
        body is replayed as far as the journal goes, then what it said with `Context.on_undo` runs, newest
        first, each journaled at a negative position (-1 is the first). One that fails is journaled like that and
        the others go on; the run ends `cancelled` all the same. A wish to compensate can be added while a run is
        cancelling, and is not withdrawn by a plain cancel.

        A run whose code no longer fits its journal cannot be undone: it fails, and goes on being undone on `retry`.
        """
        ...

    def get(self, tx: Tx, run_id: str) -> EngineRun | None: ...

    def history(self, tx: Tx, run_id: str) -> list[JournalEntry]:
        """The journal in position order."""
        ...

    def runs(
        self,
        tx: Tx,
        *,
        status: EngineStatus | None = None,
        namespace: str = "",
        limit: int = 100,
        after_id: str = "",
    ) -> list[EngineRun]:
        """By id."""
        ...

    def retry(self, tx: Tx, run_id: str) -> bool:
        """Drive a `failed` or `dead` run again; False: it is neither.

        Crash count, error and failed entries are cleared. One that ended so while it was undone is undone further.
        """
        ...

    def prune(self, tx: Tx, *, before: datetime, limit: int = 1000) -> list[str]:
        """Delete runs that ended before `before`, with journal and signals; returns their ids."""
        ...
