"""Write one outcome of a call down: row, frames, audit and diagnostics together."""

from datetime import datetime

from signoff.domain import frame
from signoff.domain.audit import AuditKind
from signoff.domain.call import LIVE, Call, CallStatus, ToolKind
from signoff.domain.frame import Frame
from signoff.ports.events import EventName
from signoff.ports.store import CallChanges, Tx
from signoff.turn import card
from signoff.turn.deps import SettleDeps
from signoff.turn.outbox import tell_settled
from signoff.turn.outcome import Answered, Completed, Declined, ExpiredUnanswered, Failed, Outcome

EXPIRED_REASON = "approval expired"

#: Set by the decision, before the run that asked has heard of it.
_DECIDED = frozenset({CallStatus.REJECTED, CallStatus.EXPIRED})


def record_outcome(tx: Tx, call: Call, outcome: Outcome, *, stream_id: str, deps: SettleDeps) -> None:
    """The first outcome stands: a call that has one is left as it is."""
    if call.ended_at is not None:
        return
    now = deps.clock.now()
    status, changes, frames = _describe(call, outcome)
    changes["status"], changes["ended_at"] = status, now
    tx.change_call(call.id, expect=LIVE | _DECIDED, **changes)
    tx.emit(stream_id, frames)
    _tell(tx, call, outcome, status, deps=deps, now=now)


def _tell(tx: Tx, call: Call, outcome: Outcome, status: CallStatus, *, deps: SettleDeps, now: datetime) -> None:
    if call.kind is ToolKind.ACTION:
        kind = _audit_kind(outcome)
        if kind is not None:
            tx.append_audit(
                tenant=call.tenant,
                at=now,
                kind=kind,
                run_id=call.run_id,
                call_id=call.id,
                actor_id=(call.resolved_by or call.decided_by) if kind is AuditKind.EXECUTED else None,
                data={"tool": call.name, "arguments": call.final_arguments, "status": status.value},
            )
    asked = call.approver is not None or call.request is not None
    if deps.notifies and asked and call.decided_via != "remembered":
        tell_settled(tx, call, status=status.value, now=now)
    if call.kind in (ToolKind.ACTION, ToolKind.ASK):
        deps.events.emit_on_commit(
            tx,
            EventName.APPROVAL_SETTLED,
            run_id=call.run_id,
            thread_id=call.thread_id,
            call_id=call.id,
            tool=call.name,
            status=status.value,
        )
    if call.kind is ToolKind.AGENT:
        deps.events.emit_on_commit(
            tx,
            EventName.DELEGATED,
            run_id=call.run_id,
            thread_id=call.thread_id,
            call_id=call.id,
            tool=call.name,
            child_run_id=call.child_run_id,
            status=status.value,
        )


def _describe(call: Call, outcome: Outcome) -> tuple[CallStatus, CallChanges, list[Frame]]:
    """Row and frames of an outcome. A refusal is two frames: not every reader knows the second (WIRE 5.6)."""
    match outcome:
        case Completed(output=output, started_at=started_at):
            changes: CallChanges = {"output": output, "error": None}
            if started_at is not None:
                changes["started_at"] = datetime.fromisoformat(started_at)
            return CallStatus.COMPLETED, changes, [frame.tool_output(call_id=call.id, output=output)]
        case Failed(error=error):
            return (
                CallStatus.FAILED,
                {"output": {"error": error}, "error": error},
                [frame.tool_output_error(call_id=call.id, error=error)],
            )
        case Declined(reason=reason):
            shown = reason or "rejected"
            return (
                CallStatus.REJECTED,
                {
                    "output": frame.without_none(rejected=True, reason=reason),
                    "error": "rejected",
                    "decision_reason": reason,
                },
                [
                    card.approval_settled(call, status="rejected"),
                    frame.tool_output_error(call_id=call.id, error=shown),
                    frame.tool_output_denied(call_id=call.id, reason=reason),
                ],
            )
        case ExpiredUnanswered():
            return (
                CallStatus.EXPIRED,
                {"output": {"expired": True, "reason": EXPIRED_REASON}, "error": EXPIRED_REASON},
                [
                    card.approval_settled(call, status="expired"),
                    frame.tool_output_error(call_id=call.id, error=EXPIRED_REASON),
                    frame.tool_output_denied(call_id=call.id, reason=EXPIRED_REASON),
                ],
            )
        case Answered(answers=answers, skipped=skipped):
            status = CallStatus.REJECTED if skipped else CallStatus.COMPLETED
            return status, {"output": answers, "error": None}, [frame.tool_output(call_id=call.id, output=answers)]
        case _:
            raise TypeError(f"no outcome of a call: {outcome!r}")


def _audit_kind(outcome: Outcome) -> AuditKind | None:
    match outcome:
        case Completed():
            return AuditKind.EXECUTED
        case Failed(mismatch=True):
            return AuditKind.MISMATCHED
        case Failed():
            return AuditKind.EXECUTION_FAILED
        case ExpiredUnanswered():
            return AuditKind.EXPIRED
        case _:
            return None  # a person's no is in the audit since they said it
