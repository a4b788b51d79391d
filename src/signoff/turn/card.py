"""A card: what a person is asked about one call, and what the decision is bound to."""

from datetime import datetime

from signoff.domain.approval import Requirement
from signoff.domain.audit import AuditKind
from signoff.domain.call import Call
from signoff.domain.frame import Frame, instant, without_none
from signoff.domain.jsonvalue import Json, JsonObject, digest
from signoff.domain.safetext import safe_text
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.turn.deps import TurnDeps
from signoff.turn.outbox import tell_requested


def digest_of(*, tool: str, schema_version: str | None, arguments: Json) -> str:
    """What a decision is bound to: the tool, the shape of its arguments, and the arguments."""
    return digest({"tool": tool, "schema": schema_version, "arguments": arguments})


def signal_name(call: Call) -> str:
    """The signal that carries the answer to `call` as it stands; every round in doubt waits for one of its own."""
    name = f"tool:{call.run_id}:{call.id}"
    round_ = doubt_round(call)
    return name if round_ == 0 else doubt_signal_name(name, round_)


def doubt_round(call: Call) -> int:
    """How often the call has been in doubt: 0 for a card that waits for its first approval."""
    return 0 if call.in_doubt is None else int(str(call.in_doubt.get("round", 1)))


def doubt_signal_name(name: str, round_: int) -> str:
    """The signal of the `round_`-th time (from 1) that a call is in doubt."""
    return f"{name}:doubt:{round_}"


def approval_requested(call: Call, *, votes: int = 0) -> Frame:
    """The card as the stream shows it (WIRE 4 and 11)."""
    card = without_none(
        kind="approval-requested",
        id=call.id,
        approver=call.approver,
        expiresAt=None if call.expires_at is None else instant(call.expires_at),
        reason=call.request_reason,
        confirmation=call.confirmation,
        target=call.target,
        runId=call.run_id,
        toolName=call.name,
        digest=call.shown_digest,
        inDoubt=call.in_doubt,
        quorum={"needed": call.quorum, "have": votes} if call.quorum > 1 else None,
    )
    card["input"] = call.final_arguments
    card["safeText"] = safe_text(call.final_arguments)
    return card


def approval_settled(call: Call, *, status: str, remember: bool = False) -> Frame:
    """How the card was closed; `editedInput` is what runs where a person changed what was asked."""
    decided_by, decided_via = call.settled_by
    return without_none(
        kind="approval-settled",
        id=call.id,
        status=status,
        approver=call.approver,
        decidedBy=decided_by,
        decidedVia=decided_via,
        inDoubt=call.in_doubt,
        remember=True if remember else None,
        reason=call.decision_reason,
        editedInput=call.edited_arguments if status == "approved" else None,
    )


def elicitation(call: Call) -> Frame:
    """The question set as the stream shows it."""
    return {"kind": "elicitation", "id": call.id, "runId": call.run_id, "request": call.request}


def put_to_person(tx: Tx, call: Call, *, deps: TurnDeps, now: datetime, requirement: Requirement | None) -> None:
    """The bookkeeping of asking: audit, notification, diagnostics."""
    data: JsonObject = without_none(
        tool=call.name,
        arguments=call.arguments,
        digest=call.digest,
        approver=call.approver,
        expiresAt=None if call.expires_at is None else instant(call.expires_at),
        quorum=requirement.quorum if requirement is not None and requirement.quorum > 1 else None,
        inDoubt=call.in_doubt,
    )
    tx.append_audit(
        tenant=call.tenant,
        at=now,
        kind=AuditKind.REQUESTED if call.in_doubt is None else AuditKind.IN_DOUBT,
        run_id=call.run_id,
        call_id=call.id,
        actor_id=call.actor_id,
        data=data,
    )
    if deps.notifies:
        tell_requested(tx, call, now=now)
    deps.events.emit_on_commit(
        tx,
        EventName.APPROVAL_REQUESTED,
        run_id=call.run_id,
        thread_id=call.thread_id,
        call_id=call.id,
        tool=call.name,
        approver=call.approver,
    )
