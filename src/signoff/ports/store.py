"""What people read, and the one transaction in which it changes together with the journal (DESIGN section 4).

All row operations are synchronous methods of `Tx`, so that a function of a transaction cannot await in it.
`Store.transact` and `Store.read` run such functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, TypedDict, TypeVar, Unpack

from signoff.domain.approval import Remembered, Vote
from signoff.domain.audit import AuditEntry, AuditHead, AuditKind
from signoff.domain.call import Call, CallStatus
from signoff.domain.frame import Frame, NumberedFrame
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Run, RunStatus, UsageEntry
from signoff.domain.thread import Message, Thread

T = TypeVar("T")


class ThreadChanges(TypedDict, total=False):
    """Columns of a thread that may change; a key that is present is written, None included."""

    title: str
    transient: bool
    updated_at: datetime
    default_agent: str | None
    model: str | None
    persona: str | None
    last_message_preview: str | None
    deleted_at: datetime | None


class RunChanges(TypedDict, total=False):
    """Columns of a run that may change while it is active (its end is `settle_run`)."""

    parked: bool
    fingerprint: str
    owner: str | None
    lease_until: datetime | None
    attempt_seq: int | None
    input: JsonObject


class CallChanges(TypedDict, total=False):
    """Columns of a call that may change."""

    status: CallStatus
    edited_arguments: JsonObject | None
    child_run_id: str | None
    started_at: datetime | None
    ended_at: datetime | None
    output: Json
    error: str | None
    approver: str | None
    confirmation: JsonObject | None
    target: JsonObject | None
    digest: str | None
    expires_at: datetime | None
    widened: tuple[str, ...]
    in_doubt: JsonObject | None
    decided_by: str | None
    decided_via: str | None
    decided_at: datetime | None
    decision_reason: str | None
    remember: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentTokens:
    """What an actor spent in a span of days: tokens (input + output) and US dollars."""

    tokens: int
    cost_usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyRecord:
    """What a start under an idempotency key led to. `body_digest` tells a repeat from a misuse."""

    actor_id: str
    tenant: str
    key: str
    body_digest: str
    run_id: str
    thread_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFilter:
    """Which open cards. None means any. `deadline_before` selects cards whose deadline is earlier.

    `open_at` leaves out cards whose deadline has come by then, whether or not somebody closed them yet (C11).
    """

    tenant: str
    actor_id: str | None = None
    tool: str | None = None
    agent: str | None = None
    requested_before: datetime | None = None
    deadline_before: datetime | None = None
    open_at: datetime | None = None


class CardOrder(StrEnum):
    """Which open cards come first: those that wait longest, or those whose deadline is nearest (none: last)."""

    OLDEST = "oldest"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPage:
    """Open cards in the order that was asked for. `next_cursor` is None on the last page; `total` counts all pages."""

    cards: Sequence[Call]
    total: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """A notification that must be delivered at least once. `payload` says what; `due_at` when to try next.

    `notifier` names who delivers it; None: it is still to be handed to each one there is.
    """

    id: str
    tenant: str
    call_id: str
    kind: str
    payload: JsonObject
    attempts: int
    due_at: datetime
    delivered_at: datetime | None = None
    last_error: str | None = None
    notifier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """What one `Tx.emit` or `Tx.withdraw` put on a stream: its numbers, and its frames; None if it withdrew some."""

    stream_id: str
    first_seq: int
    last_seq: int
    frames: Sequence[Frame] | None


class Tx(Protocol):
    """One transaction. Reads see this transaction's own writes. Never keep it, never use it across an await.

    `insert_*` of an id that exists raises `ValueError`; changes of a row that does not exist change nothing.
    """

    # threads ------------------------------------------------------------------------------------------------

    def insert_thread(self, thread: Thread) -> None: ...

    def thread(self, thread_id: str) -> Thread | None:
        """The thread, deleted ones included (`deleted_at`)."""
        ...

    def threads_of(self, *, actor_id: str, tenant: str) -> list[Thread]:
        """The actor's kept threads: not deleted, not transient; last updated first."""
        ...

    def change_thread(self, thread_id: str, **changes: Unpack[ThreadChanges]) -> None: ...

    def claim_thread(self, thread_id: str, run_id: str) -> bool:
        """Make `run_id` the active run, if there is none: one conditional write. False: somebody else has it."""
        ...

    def release_thread(self, thread_id: str, run_id: str) -> None:
        """Clear the active run, if it is `run_id`."""
        ...

    # messages -----------------------------------------------------------------------------------------------

    def insert_message(self, message: Message, **of_thread: Unpack[ThreadChanges]) -> Message:
        """Store it at the end of its thread; returns it with its `seq` (rising within the thread).

        `of_thread` are changes of the thread that come with the message, as `change_thread` makes them.
        """
        ...

    def message(self, message_id: str) -> Message | None: ...

    def messages_of(self, thread_id: str, *, from_seq: int = 0, last: int | None = None) -> list[Message]:
        """Messages with `seq >= from_seq`, oldest first; with `last`, only that many newest ones."""
        ...

    def delete_messages(self, thread_id: str, *, from_seq: int) -> None:
        """Delete the messages with `seq >= from_seq` and the calls that belong to them."""
        ...

    def adopt_messages(self, *, from_thread: str, to_thread: str) -> None:
        """Move the assistant's messages of a thread, with their calls, to the end of another one, in order."""
        ...

    # runs ---------------------------------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None: ...

    def run(self, run_id: str, *, lock: bool = False) -> Run | None:
        """The run's row. With `lock` nobody else changes it before this transaction has ended."""
        ...

    def change_run(self, run_id: str, **changes: Unpack[RunChanges]) -> None: ...

    def settle_run(
        self,
        run_id: str,
        *,
        status: RunStatus,
        ended_at: datetime,
        error_code: str | None = None,
        error: str | None = None,
    ) -> bool:
        """Give the run its terminal status if it has none: one conditional write. False: it had ended already.

        Clears `parked`, `owner` and `lease_until`.
        """
        ...

    def reopen_run(self, run_id: str) -> bool:
        """failed -> running, for an operator's retry; clears error and end. False: the run was not failed."""
        ...

    def add_to_run(self, run_id: str, *, steps: int, input_tokens: int, output_tokens: int, cost_usd: Decimal) -> None:
        """Add to the run's totals, and clear `attempt_seq`: the model attempt under way has ended well."""
        ...

    def children_of(self, run_id: str) -> list[Run]:
        """Runs whose `parent_id` is `run_id`, oldest first."""
        ...

    def runs(
        self,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        parked: bool | None = None,
        durable: bool | None = None,
        agent: str | None = None,
        fingerprint: str | None = None,
        lease_before: datetime | None = None,
        ended_before: datetime | None = None,
        limit: int = 100,
        before_id: str | None = None,
    ) -> list[Run]:
        """Runs that match, newest first (ids sort by time); `before_id` pages. None means any."""
        ...

    def renew_leases(self, owner: str, until: datetime) -> None:
        """Set `lease_until` of every active run of `owner`."""
        ...

    def delete_run(self, run_id: str) -> None:
        """Delete an ended run with its frames, votes, outbox, used links and keys.

        Messages, calls, audit and ledger stay.
        """
        ...

    # calls and cards ----------------------------------------------------------------------------------------

    def insert_call(self, call: Call) -> None: ...

    def call(self, call_id: str) -> Call | None: ...

    def calls_of_thread(self, thread_id: str, *, from_seq: int = 0) -> list[Call]:
        """Calls of the thread's messages with `seq >= from_seq`, in message order, then by `index`."""
        ...

    def calls_of_run(self, run_id: str) -> list[Call]:
        """In `(step, index)` order."""
        ...

    def change_call(self, call_id: str, *, expect: frozenset[CallStatus], **changes: Unpack[CallChanges]) -> bool:
        """Change the call if its status is one of `expect`: one conditional write. False: it was not."""
        ...

    def decide_call(
        self, call_id: str, *, expect: frozenset[CallStatus], now: datetime, **changes: Unpack[CallChanges]
    ) -> bool:
        """As `change_call`, and only if the card has no deadline or `now` is before it (C11: `now < expires_at`)."""
        ...

    def open_cards(
        self, filter_: CardFilter, *, cursor: str | None, limit: int, order: CardOrder = CardOrder.OLDEST
    ) -> CardPage:
        """A page of open cards (`pending`, `in_doubt`) of runs that are active.

        The cursor is a place in the order, not a count: cards that settle between two pages move nothing.

        Raises:
            InvalidInput: `cursor` was not made by this method, or for another order.
        """
        ...

    def add_vote(self, vote: Vote) -> bool:
        """False: this person has voted on this card already."""
        ...

    def votes_of(self, call_id: str) -> list[Vote]:
        """Oldest first."""
        ...

    def remember(self, remembered: Remembered) -> None:
        """Insert or replace."""
        ...

    def remembered(self, *, thread_id: str, tool: str) -> Remembered | None: ...

    # audit, ledger, keys, notifications ---------------------------------------------------------------------

    def append_audit(
        self,
        *,
        tenant: str,
        at: datetime,
        kind: AuditKind,
        run_id: str | None,
        call_id: str | None,
        actor_id: str | None,
        data: JsonObject,
    ) -> AuditEntry:
        """Append a row to the tenant's chain; the store gives `seq`, `previous` and `hash`."""
        ...

    def audit(
        self, *, tenant: str, after_seq: int = 0, limit: int = 1000, call_id: str | None = None
    ) -> list[AuditEntry]:
        """In `seq` order."""
        ...

    def audit_head(self, tenant: str) -> AuditHead | None:
        """Where the tenant's chain ends; kept beside the rows, so it tells when some are gone."""
        ...

    def audit_tenants(self) -> list[str]:
        """Tenants that have audit rows, or whose chain has an end; sorted. Reads an index, not the rows."""
        ...

    def add_usage(self, entry: UsageEntry) -> None:
        """Append a row to the ledger; an id that exists is left as it is (a retry wrote it before)."""
        ...

    def usage_of_run(self, run_id: str) -> list[UsageEntry]:
        """Oldest first."""
        ...

    def spent(self, *, actor_id: str, tenant: str, from_day: str, to_day: str) -> SpentTokens:
        """Sum of the actor's ledger rows with `from_day <= day <= to_day` (UTC dates, ``YYYY-MM-DD``)."""
        ...

    def put_key(self, record: IdempotencyRecord) -> IdempotencyRecord | None:
        """Store it unless the actor used the key before; returns the earlier record, or None if this is new."""
        ...

    def key(self, *, actor_id: str, tenant: str, key: str) -> IdempotencyRecord | None: ...

    def put_outbox(self, entry: OutboxEntry) -> None:
        """Insert, or replace the entry with this id."""
        ...

    def due_outbox(self, now: datetime, *, limit: int) -> list[OutboxEntry]:
        """Undelivered entries with `due_at <= now`, longest due first."""
        ...

    def change_outbox(self, entry: OutboxEntry, *, expect_due_at: datetime) -> bool:
        """Write `entry` over the one with its id, if that is undelivered and still due at `expect_due_at`.

        One conditional write: who moves `due_at` forward holds the entry until then. False: somebody else does,
        or it is gone.
        """
        ...

    def use_link(self, link_id: str, *, call_id: str, at: datetime) -> bool:
        """Use up a decision link: one conditional insert. False: it was used before."""
        ...

    def link_used(self, link_id: str) -> bool:
        """Whether a decision link is used up."""
        ...

    # frames -------------------------------------------------------------------------------------------------

    def emit(self, stream_id: str, frames: Sequence[Frame]) -> int:
        """Number the frames after the stream's last one and store them. Readers are told after the commit.

        Returns the number of the last one. No frames: returns the stream's last number (0 if it has none).
        A `done` or `error` frame closes the stream: it gets a number inside the store, but none on the wire.
        """
        ...

    def withdraw(self, stream_id: str, *, from_seq: int) -> None:
        """Delete the frames numbered `from_seq` and later, and emit a `withdrawn` frame that says so.

        The numbers are not used again. Nothing happens if there are no such frames.
        """
        ...

    def frames(self, stream_id: str, *, after: int, limit: int) -> list[NumberedFrame]:
        """Frames numbered above `after`, in order. `withdrawn` frames are left out.

        Raises:
            StreamReset: `after` lies inside a withdrawn range.
        """
        ...

    # the transaction itself ---------------------------------------------------------------------------------

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the store's event loop after the commit; never if it fails."""
        ...


class Store(Protocol):
    """Opens transactions. One event loop a store."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date (where the adapter has one)."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then disconnect. Idempotent."""
        ...

    async def transact(self, label: str, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction and return its result after the commit.

        If `work` raises, nothing is written and the error is raised here. `work` may run again after a
        deadlock or serialization failure, so it must not change anything but `Tx`. Transactions that are
        submitted in one order from one task take effect in that order.

        Args:
            label: names the transaction in errors, logs and kill points, e.g. ``"persist:step:0"``.

        Raises:
            StoreBusy: the database refused for longer than its patience (locked, disk full, gone).
        """
        ...

    def transact_soon(self, label: str, work: Callable[[Tx], None]) -> None:
        """Submit without waiting: it takes effect before any transaction submitted later, or they fail together.

        It need not be committed on its own: the next `transact` carries it, or at most 50 ms pass. An error
        in `work` is logged and drops only this piece. For marks and text that may be lost in a crash.
        """
        ...

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run `work` against what is committed. `work` must not write."""
        ...

    async def peek(self, work: Callable[[Tx], T]) -> T:
        """As `read`, for few rows that are found by their keys: it may hold up the event loop while it looks."""
        ...

    def subscribe(self, stream_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` in the event loop after each commit that emitted frames on `stream_id`, wherever it happened.

        Returns a function that ends the subscription. Wake-ups may come together or without cause.
        """
        ...

    def carry(self, take: Callable[[Sequence[Emission]], None]) -> Callable[[], None]:
        """Hand to `take`, in the event loop, what each commit made here has emitted, before its readers are woken.

        Commits that ran side by side may come in another order than their numbers. Returns what ends it.
        """
        ...
