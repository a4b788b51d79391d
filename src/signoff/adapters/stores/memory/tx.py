"""`ports.store.Tx` over dicts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Unpack

from signoff.adapters.stores.cursor import card_cursor, card_place, read_card_cursor
from signoff.adapters.stores.memory.tables import Tables, Undo, own
from signoff.domain.approval import Remembered, Vote
from signoff.domain.audit import AuditEntry, AuditHead, AuditKind, audit_hash
from signoff.domain.call import Call, CallStatus
from signoff.domain.frame import Frame, NumberedFrame
from signoff.domain.jsonvalue import JsonObject, decode, encode
from signoff.domain.run import Run, RunStatus, UsageEntry
from signoff.domain.thread import Message, Role, Thread
from signoff.errors import StreamReset
from signoff.ports.store import (
    CallChanges,
    CardFilter,
    CardOrder,
    CardPage,
    Emission,
    IdempotencyRecord,
    OutboxEntry,
    RunChanges,
    SpentTokens,
    ThreadChanges,
)


class MemoryTx:
    """One transaction. `undo` takes it back; `emitted` is what readers hear of after it."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.undo = Undo()
        self.emitted: list[Emission] = []
        self.callbacks: list[Callable[[], None]] = []

    def on_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    # threads and messages -----------------------------------------------------------------------------------

    def insert_thread(self, thread: Thread) -> None:
        self._insert(self._tables.threads, thread.id, own(thread), what="thread")

    def thread(self, thread_id: str) -> Thread | None:
        return self._tables.threads.get(thread_id)

    def threads_of(self, *, actor_id: str, tenant: str) -> list[Thread]:
        kept = [
            thread
            for thread in self._tables.threads.values()
            if (thread.actor_id, thread.tenant) == (actor_id, tenant)
            and thread.deleted_at is None
            and not thread.transient
        ]
        return sorted(kept, key=lambda thread: (thread.updated_at, thread.id), reverse=True)

    def change_thread(self, thread_id: str, **changes: Unpack[ThreadChanges]) -> None:
        if (thread := self.thread(thread_id)) is not None:
            self.undo.put(self._tables.threads, thread_id, replace(thread, **changes))

    def claim_thread(self, thread_id: str, run_id: str) -> bool:
        thread = self.thread(thread_id)
        if thread is None or thread.active_run_id is not None:
            return False
        self.undo.put(self._tables.threads, thread_id, replace(thread, active_run_id=run_id))
        return True

    def release_thread(self, thread_id: str, run_id: str) -> None:
        thread = self.thread(thread_id)
        if thread is not None and thread.active_run_id == run_id:
            self.undo.put(self._tables.threads, thread_id, replace(thread, active_run_id=None))

    def insert_message(self, message: Message, **of_thread: Unpack[ThreadChanges]) -> Message:
        stored = own(replace(message, seq=self._next_message(message.thread_id)))
        self._insert(self._tables.messages, message.id, stored, what="message")
        self.change_thread(message.thread_id, **of_thread)
        return stored

    def message(self, message_id: str) -> Message | None:
        return self._tables.messages.get(message_id)

    def messages_of(self, thread_id: str, *, from_seq: int = 0, last: int | None = None) -> list[Message]:
        found = [
            message
            for message in self._tables.messages.values()
            if message.thread_id == thread_id and message.seq >= from_seq
        ]
        found.sort(key=lambda message: message.seq)
        return found if last is None else found[max(0, len(found) - last) :]

    def delete_messages(self, thread_id: str, *, from_seq: int) -> None:
        for message in self.messages_of(thread_id, from_seq=from_seq):
            for call in [call for call in self._tables.calls.values() if call.message_id == message.id]:
                self._delete_votes(call.id)
                self.undo.drop(self._tables.calls, call.id)
            self.undo.drop(self._tables.messages, message.id)

    def adopt_messages(self, *, from_thread: str, to_thread: str) -> None:
        for message in self.messages_of(from_thread):
            if message.role is not Role.ASSISTANT:
                continue
            moved = replace(message, thread_id=to_thread, seq=self._next_message(to_thread))
            self.undo.put(self._tables.messages, message.id, moved)
            for call in [call for call in self._tables.calls.values() if call.message_id == message.id]:
                self.undo.put(self._tables.calls, call.id, replace(call, thread_id=to_thread))

    # runs ---------------------------------------------------------------------------------------------------

    def insert_run(self, run: Run) -> None:
        self._insert(self._tables.runs, run.id, own(run), what="run")

    def run(self, run_id: str, *, lock: bool = False) -> Run | None:  # noqa: ARG002  # one transaction at a time
        return self._tables.runs.get(run_id)

    def change_run(self, run_id: str, **changes: Unpack[RunChanges]) -> None:
        if (run := self.run(run_id)) is not None:
            self.undo.put(self._tables.runs, run_id, own(replace(run, **changes)))

    def settle_run(
        self,
        run_id: str,
        *,
        status: RunStatus,
        ended_at: datetime,
        error_code: str | None = None,
        error: str | None = None,
    ) -> bool:
        run = self.run(run_id)
        if run is None or run.status.is_terminal:
            return False
        ended = replace(run, status=status, ended_at=ended_at, error_code=error_code, error=error)
        self.undo.put(self._tables.runs, run_id, replace(ended, parked=False, owner=None, lease_until=None))
        return True

    def reopen_run(self, run_id: str) -> bool:
        run = self.run(run_id)
        if run is None or run.status is not RunStatus.FAILED:
            return False
        reopened = replace(run, status=RunStatus.RUNNING, ended_at=None, error_code=None, error=None)
        self.undo.put(self._tables.runs, run_id, reopened)
        return True

    def add_to_run(self, run_id: str, *, steps: int, input_tokens: int, output_tokens: int, cost_usd: Decimal) -> None:
        if (run := self.run(run_id)) is not None:
            added = replace(
                run,
                steps=run.steps + steps,
                input_tokens=run.input_tokens + input_tokens,
                output_tokens=run.output_tokens + output_tokens,
                cost_usd=run.cost_usd + cost_usd,
                attempt_seq=None,
            )
            self.undo.put(self._tables.runs, run_id, own(added))

    def children_of(self, run_id: str) -> list[Run]:
        children = [run for run in self._tables.runs.values() if run.parent_id == run_id]
        return sorted(children, key=lambda run: (run.created_at, run.id))

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
        found = [
            run
            for run in self._tables.runs.values()
            if tenant in (None, run.tenant)
            and status in (None, run.status)
            and parked in (None, run.parked)
            and durable in (None, run.durable)
            and agent in (None, run.agent)
            and fingerprint in (None, run.fingerprint)
            and (lease_before is None or _is_before(run.lease_until, lease_before))
            and (ended_before is None or _is_before(run.ended_at, ended_before))
            and (before_id is None or run.id < before_id)
        ]
        return sorted(found, key=lambda run: run.id, reverse=True)[:limit]

    def renew_leases(self, owner: str, until: datetime) -> None:
        for run in list(self._tables.runs.values()):
            if run.owner == owner and not run.status.is_terminal:
                self.undo.put(self._tables.runs, run.id, replace(run, lease_until=until))

    def delete_run(self, run_id: str) -> None:
        run = self.run(run_id)
        if run is None or not run.status.is_terminal:
            return
        self.undo.drop(self._tables.runs, run_id)
        self.undo.drop(self._tables.streams, run_id)
        self._drop_where(self._tables.frames, lambda key, _: key[0] == run_id)
        self._drop_where(self._tables.withdrawals, lambda key, _: key[0] == run_id)
        self._drop_where(self._tables.keys, lambda _, record: record.run_id == run_id)
        call_ids = {call.id for call in self.calls_of_run(run_id)}
        self._drop_where(self._tables.votes, lambda key, _: key[0] in call_ids)
        self._drop_where(self._tables.outbox, lambda _, entry: entry.call_id in call_ids)
        self._drop_where(self._tables.used_links, lambda _, call_id: call_id in call_ids)

    # calls and cards ----------------------------------------------------------------------------------------

    def insert_call(self, call: Call) -> None:
        self._insert(self._tables.calls, call.id, own(call), what="call")

    def call(self, call_id: str) -> Call | None:
        return self._tables.calls.get(call_id)

    def calls_of_thread(self, thread_id: str, *, from_seq: int = 0) -> list[Call]:
        seqs = {message.id: message.seq for message in self.messages_of(thread_id, from_seq=from_seq)}
        calls = [call for call in self._tables.calls.values() if call.message_id in seqs]
        return sorted(calls, key=lambda call: (seqs[call.message_id], call.step, call.index, call.id))

    def calls_of_run(self, run_id: str) -> list[Call]:
        calls = [call for call in self._tables.calls.values() if call.run_id == run_id]
        return sorted(calls, key=lambda call: (call.step, call.index, call.id))

    def change_call(self, call_id: str, *, expect: frozenset[CallStatus], **changes: Unpack[CallChanges]) -> bool:
        call = self.call(call_id)
        if call is None or call.status not in expect:
            return False
        self.undo.put(self._tables.calls, call_id, own(replace(call, **changes)))
        return True

    def decide_call(
        self, call_id: str, *, expect: frozenset[CallStatus], now: datetime, **changes: Unpack[CallChanges]
    ) -> bool:
        call = self.call(call_id)
        if call is not None and call.expires_at is not None and now >= call.expires_at:
            return False
        return self.change_call(call_id, expect=expect, **changes)

    def open_cards(
        self, filter_: CardFilter, *, cursor: str | None, limit: int, order: CardOrder = CardOrder.OLDEST
    ) -> CardPage:
        cards = sorted(self._open_cards(filter_), key=lambda card: card_place(card, order))
        rest = cards
        if cursor is not None:
            after = read_card_cursor(cursor, order)
            rest = [card for card in cards if card_place(card, order) > after]
        page = rest[:limit]
        next_cursor = card_cursor(page[-1], order) if page and len(rest) > limit else None
        return CardPage(cards=page, total=len(cards), next_cursor=next_cursor)

    def add_vote(self, vote: Vote) -> bool:
        key = (vote.call_id, vote.actor_id)
        if key in self._tables.votes:
            return False
        self.undo.put(self._tables.votes, key, vote)
        return True

    def votes_of(self, call_id: str) -> list[Vote]:
        votes = [vote for vote in self._tables.votes.values() if vote.call_id == call_id]
        return sorted(votes, key=lambda vote: (vote.at, vote.actor_id))

    def remember(self, remembered: Remembered) -> None:
        self.undo.put(self._tables.remembered, (remembered.thread_id, remembered.tool), remembered)

    def remembered(self, *, thread_id: str, tool: str) -> Remembered | None:
        return self._tables.remembered.get((thread_id, tool))

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
        head = self._tables.audit_heads.get(tenant)
        facts: dict[str, Any] = {
            "tenant": tenant,
            "seq": head.seq + 1 if head else 1,
            "at": at.astimezone(UTC),
            "kind": kind,
            "run_id": run_id,
            "call_id": call_id,
            "actor_id": actor_id,
            "data": data,
            "previous": head.hash if head else "",
        }
        entry = own(AuditEntry(**facts, hash=audit_hash(**facts)))
        self.undo.put(self._tables.audit, (tenant, entry.seq), entry)
        self.undo.put(self._tables.audit_heads, tenant, entry)
        return entry

    def audit(
        self, *, tenant: str, after_seq: int = 0, limit: int = 1000, call_id: str | None = None
    ) -> list[AuditEntry]:
        chain = [
            entry
            for entry in self._tables.audit.values()
            if entry.tenant == tenant and entry.seq > after_seq and call_id in (None, entry.call_id)
        ]
        return sorted(chain, key=lambda entry: entry.seq)[:limit]

    def audit_head(self, tenant: str) -> AuditHead | None:
        head = self._tables.audit_heads.get(tenant)
        return None if head is None else AuditHead(tenant=tenant, seq=head.seq, hash=head.hash)

    def audit_tenants(self) -> list[str]:
        return sorted({tenant for tenant, _ in self._tables.audit} | set(self._tables.audit_heads))

    def add_usage(self, entry: UsageEntry) -> None:
        if entry.id not in self._tables.ledger:
            self.undo.put(self._tables.ledger, entry.id, own(entry))

    def usage_of_run(self, run_id: str) -> list[UsageEntry]:
        entries = [entry for entry in self._tables.ledger.values() if entry.run_id == run_id]
        return sorted(entries, key=lambda entry: (entry.at, entry.step, entry.attempt, entry.id))

    def spent(self, *, actor_id: str, tenant: str, from_day: str, to_day: str) -> SpentTokens:
        entries = [
            entry
            for entry in self._tables.ledger.values()
            if (entry.actor_id, entry.tenant) == (actor_id, tenant) and from_day <= entry.day <= to_day
        ]
        return SpentTokens(
            tokens=sum(entry.usage.total for entry in entries),
            cost_usd=sum((entry.cost_usd for entry in entries if entry.cost_usd is not None), Decimal(0)),
        )

    def put_key(self, record: IdempotencyRecord) -> IdempotencyRecord | None:
        key = (record.actor_id, record.tenant, record.key)
        earlier = self._tables.keys.get(key)
        if earlier is None:
            self.undo.put(self._tables.keys, key, record)
        return earlier

    def key(self, *, actor_id: str, tenant: str, key: str) -> IdempotencyRecord | None:
        return self._tables.keys.get((actor_id, tenant, key))

    def put_outbox(self, entry: OutboxEntry) -> None:
        self.undo.put(self._tables.outbox, entry.id, own(entry))

    def due_outbox(self, now: datetime, *, limit: int) -> list[OutboxEntry]:
        due = [entry for entry in self._tables.outbox.values() if entry.delivered_at is None and entry.due_at <= now]
        return sorted(due, key=lambda entry: (entry.due_at, entry.id))[:limit]

    def change_outbox(self, entry: OutboxEntry, *, expect_due_at: datetime) -> bool:
        before = self._tables.outbox.get(entry.id)
        if before is None or before.delivered_at is not None or before.due_at != expect_due_at:
            return False
        self.put_outbox(entry)
        return True

    def use_link(self, link_id: str, *, call_id: str, at: datetime) -> bool:  # noqa: ARG002  # kept by databases
        if link_id in self._tables.used_links:
            return False
        self.undo.put(self._tables.used_links, link_id, call_id)
        return True

    def link_used(self, link_id: str) -> bool:
        return link_id in self._tables.used_links

    # frames -------------------------------------------------------------------------------------------------

    def emit(self, stream_id: str, frames: Sequence[Frame]) -> int:
        last_seq = self._tables.streams.get(stream_id, 0)
        if not frames:
            return last_seq
        for seq, frame in enumerate(frames, last_seq + 1):
            self.undo.put(self._tables.frames, (stream_id, seq), _copy(frame))
        self.undo.put(self._tables.streams, stream_id, last_seq + len(frames))
        first_seq, last_seq = last_seq + 1, last_seq + len(frames)
        self.emitted.append(Emission(stream_id=stream_id, first_seq=first_seq, last_seq=last_seq, frames=frames))
        return last_seq

    def withdraw(self, stream_id: str, *, from_seq: int) -> None:
        numbers = [seq for seq, _ in self._frames_after(stream_id, from_seq - 1)]
        if not numbers:
            return
        for seq in numbers:
            self.undo.drop(self._tables.frames, (stream_id, seq))
        # The `withdrawn` frame itself is never read, so its number and range are all that is kept.
        seq = self._tables.streams[stream_id] + 1
        self.undo.put(self._tables.streams, stream_id, seq)
        self.undo.put(self._tables.withdrawals, (stream_id, seq), numbers[0])
        self.emitted.append(Emission(stream_id=stream_id, first_seq=seq, last_seq=seq, frames=None))

    def frames(self, stream_id: str, *, after: int, limit: int) -> list[NumberedFrame]:
        for (stream, seq), from_seq in self._tables.withdrawals.items():
            if stream == stream_id and from_seq <= after < seq:
                raise StreamReset(stream_id)
        found: list[NumberedFrame] = []
        for seq, frame in self._frames_after(stream_id, after):
            if len(found) == limit:
                break
            found.append(NumberedFrame(seq=seq, frame=frame))
        return found

    # helpers ------------------------------------------------------------------------------------------------

    def _insert(self, table: dict[str, Any], key: str, row: object, *, what: str) -> None:
        if key in table:
            raise ValueError(f"there is a {what} {key!r} already")
        self.undo.put(table, key, row)

    def _next_message(self, thread_id: str) -> int:
        if thread_id not in self._tables.threads:
            raise ValueError(f"there is no thread {thread_id!r}")
        seq = self._tables.last_messages.get(thread_id, 0) + 1
        self.undo.put(self._tables.last_messages, thread_id, seq)
        return seq

    def _delete_votes(self, call_id: str) -> None:
        self._drop_where(self._tables.votes, lambda key, _: key[0] == call_id)

    def _drop_where(self, table: dict[Any, Any], matches: Callable[[Any, Any], bool]) -> None:
        for key in [key for key, row in table.items() if matches(key, row)]:
            self.undo.drop(table, key)

    def _open_cards(self, filter_: CardFilter) -> Iterator[Call]:
        for call in self._tables.calls.values():
            run = self.run(call.run_id)
            if (
                call.is_open
                and run is not None
                and not run.status.is_terminal
                and call.tenant == filter_.tenant
                and filter_.actor_id in (None, call.actor_id)
                and filter_.tool in (None, call.name)
                and filter_.agent in (None, call.agent_name)
                and (filter_.requested_before is None or call.created_at < filter_.requested_before)
                and (filter_.deadline_before is None or _is_before(call.expires_at, filter_.deadline_before))
                and (filter_.open_at is None or call.expires_at is None or filter_.open_at < call.expires_at)
            ):
                yield call

    def _frames_after(self, stream_id: str, after: int) -> Iterator[tuple[int, Frame]]:
        for seq in range(max(after, 0) + 1, self._tables.streams.get(stream_id, 0) + 1):
            frame = self._tables.frames.get((stream_id, seq))
            if frame is not None:
                yield seq, frame


def _is_before(instant: datetime | None, limit: datetime) -> bool:
    return instant is not None and instant < limit


def _copy(frame: Frame) -> Frame:
    copied = decode(encode(frame))
    assert isinstance(copied, dict)
    return copied
