"""Settle what a run leaves behind, in one transaction: cards, run row, thread and stream (DESIGN 3.8)."""

import logging
from datetime import datetime
from typing import assert_never

from signoff.domain import frame
from signoff.domain.audit import AuditKind
from signoff.domain.call import LIVE, OPEN, Call, CallStatus, ToolKind
from signoff.domain.frame import Frame
from signoff.domain.run import Run, RunStatus
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.turn.delivery import deliver
from signoff.turn.deps import SettleDeps
from signoff.turn.outbox import tell_settled
from signoff.turn.outcome import Declined, ExpiredUnanswered, Outcome
from signoff.turn.record_outcome import record_outcome

_log = logging.getLogger("signoff.runs")

CANCELLED_TEXT = "cancelled"
NEVER_COMPLETED_TEXT = "never completed: the turn ended first"


def complete(tx: Tx, run: Run, *, deps: SettleDeps, frames: list[Frame]) -> bool:
    """The turn ended well; `frames` are its last ones. False: it had ended before, nothing was written."""
    return _end(tx, run, RunStatus.COMPLETED, deps=deps, frames=frames, code=None, text=None)


def cancel(tx: Tx, run: Run, *, deps: SettleDeps) -> bool:
    """The turn was stopped: open calls become cancelled, the last frame says so. False: it had ended before."""
    return _end(tx, run, RunStatus.CANCELLED, deps=deps, frames=[], code=None, text=None)


def fail(tx: Tx, run: Run, *, deps: SettleDeps, code: str, text: str) -> bool:
    """The turn died: what it had put to people becomes failed. False: it had ended before."""
    return _end(tx, run, RunStatus.FAILED, deps=deps, frames=[], code=code, text=text)


def reopen(tx: Tx, run: Run) -> bool:
    """Take back a failure, for an operator's retry: row, thread, cards and stream are as before it.

    False: the run had not failed. The thread is held again unless another run holds it by now.
    """
    if run.status is not RunStatus.FAILED or not tx.reopen_run(run.id):
        return False
    tx.claim_thread(run.thread_id, run.id)
    for call in tx.calls_of_run(run.id):
        if call.status is CallStatus.FAILED and call.error == NEVER_COMPLETED_TEXT:
            tx.change_call(
                call.id,
                expect=frozenset({CallStatus.FAILED}),
                status=_status_before(call),
                error=None,
                output=None,
                ended_at=None,
            )
    if run.stream_id == run.id and run.attempt_seq is not None:
        tx.withdraw(run.stream_id, from_seq=run.attempt_seq)
        tx.change_run(run.id, attempt_seq=None)
    return True


def _status_before(call: Call) -> CallStatus:
    if call.in_doubt is not None and call.resolved_by is None:
        return CallStatus.IN_DOUBT
    asks = call.approver is not None or call.request is not None
    if not asks:
        return CallStatus.APPROVED if call.kind is ToolKind.ACTION else CallStatus.RUNNING
    return CallStatus.PENDING if call.decided_by is None else CallStatus.APPROVED


def _end(
    tx: Tx,
    run: Run,
    status: RunStatus,
    *,
    deps: SettleDeps,
    frames: list[Frame],
    code: str | None,
    text: str | None,
) -> bool:
    now = deps.clock.now()
    if not tx.settle_run(run.id, status=status, ended_at=now, error_code=code, error=text):
        return False
    nested = run.stream_id != run.id
    closing = [
        *frames,
        *_close_sub_agents(tx, run, status, deps=deps, now=now, stream_ends=not nested),
        *_settle_calls(tx, run, status, deps=deps, now=now),
    ]
    match status:
        case RunStatus.COMPLETED:
            closing += [] if nested else [frame.done()]
        case RunStatus.CANCELLED:
            closing += [] if nested else [frame.cancelled(), frame.done()]
        case RunStatus.FAILED:
            closing += [] if nested else [frame.error(code=code or "run_failed", message=text or "the run failed")]
        case RunStatus.RUNNING:
            raise ValueError("a run does not end running")
        case _:
            assert_never(status)
    if run.detached:
        deliver(tx, run, status, now=now)
    # Release before the terminal frame: whoever reads it sends the next message at once.
    tx.release_thread(run.thread_id, run.id)
    last = tx.emit(run.stream_id, closing)
    if status is RunStatus.FAILED and not nested:
        # Where the ending begins on the stream: an operator's retry withdraws it.
        tx.change_run(run.id, attempt_seq=last - len(closing) + 1)
    if status is RunStatus.FAILED:
        # The stream may hide the text from users; whoever is on call reads it here and in the run's row.
        tx.on_commit(lambda: _log.warning("run %s of agent %s failed: %s: %s", run.id, run.agent, code, text))
    name = EventName.RUN_FAILED if status is RunStatus.FAILED else EventName.RUN_FINISHED
    deps.events.emit_on_commit(
        tx, name, run_id=run.id, thread_id=run.thread_id, agent=run.agent, status=status.value, code=code
    )
    return True


def _close_sub_agents(
    tx: Tx, run: Run, status: RunStatus, *, deps: SettleDeps, now: datetime, stream_ends: bool
) -> list[Frame]:
    """Close the cards of sub-agents that are still at work for this run: it ends at once, they a moment later.

    A tool of theirs that is under way is left to them, who will record what it did; where the stream ends here, its
    frame can't wait for that (WIRE 5.5).
    """
    if status is RunStatus.COMPLETED:
        return []  # it has waited for all of them
    closing: list[Frame] = []
    for child in tx.children_of(run.id):
        if child.detached or child.status.is_terminal:
            continue
        closing += _close_sub_agents(tx, child, status, deps=deps, now=now, stream_ends=stream_ends)
        for call in tx.calls_of_run(child.id):
            if call.status in OPEN:
                closing += _close(tx, call, status, deps=deps, now=now)
            elif call.status in LIVE and stream_ends:
                closing.append(frame.tool_output_error(call_id=call.id, error=_closed_as(status)[1]))
    return closing


def _settle_calls(tx: Tx, run: Run, status: RunStatus, *, deps: SettleDeps, now: datetime) -> list[Frame]:
    """Give every live call of the run a final status; its frames end what the stream had announced."""
    closing: list[Frame] = []
    for call in tx.calls_of_run(run.id):
        if call.ended_at is None and (decided := _decided(call)) is not None:
            record_outcome(tx, call, decided, stream_id=run.stream_id, deps=deps)
        if call.status in LIVE:
            closing += _close(tx, call, status, deps=deps, now=now)
    return closing


def _close(tx: Tx, call: Call, status: RunStatus, *, deps: SettleDeps, now: datetime) -> list[Frame]:
    """End a live call because its run, or the one that waits for it, has ended with `status`."""
    final, text = _closed_as(status)
    if not tx.change_call(call.id, expect=LIVE, status=final, error=text, output={"error": text}, ended_at=now):
        return []
    if call.status in OPEN:
        _audit_closed(tx, call, final, now=now)
        if deps.notifies:
            tell_settled(tx, call, status=final.value, now=now)
    return [frame.tool_output_error(call_id=call.id, error=text)]


def _closed_as(status: RunStatus) -> tuple[CallStatus, str]:
    if status is RunStatus.CANCELLED:
        return CallStatus.CANCELLED, CANCELLED_TEXT
    return CallStatus.FAILED, NEVER_COMPLETED_TEXT


def _decided(call: Call) -> Outcome | None:
    """What people or time had said about a call whose run has ended before it heard of it."""
    match call.status:
        case CallStatus.REJECTED:
            return Declined(reason=call.decision_reason)
        case CallStatus.EXPIRED:
            return ExpiredUnanswered()
        case _:
            return None


def _audit_closed(tx: Tx, call: Call, final: CallStatus, *, now: datetime) -> None:
    tx.append_audit(
        tenant=call.tenant,
        at=now,
        kind=AuditKind.CANCELLED,
        run_id=call.run_id,
        call_id=call.id,
        actor_id=None,
        data={"tool": call.name, "status": final.value},
    )
