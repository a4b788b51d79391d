"""Notifications leave through an outbox that is written with the card (Part C's delivery reads it)."""

from datetime import datetime

from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.store import OutboxEntry, Tx


def tell_requested(tx: Tx, call: Call, *, now: datetime) -> None:
    """Somebody is asked: tell the approvers."""
    _tell(tx, call, kind="requested", now=now, extra={})


def tell_escalated(tx: Tx, call: Call, *, kind: str, rung: int, role: str | None, now: datetime) -> None:
    """A rung of the ladder: `kind` is "reminded" or "widened"."""
    _tell(tx, call, kind=kind, now=now, extra={"rung": rung, "role": role})


def tell_settled(tx: Tx, call: Call, *, status: str, now: datetime) -> None:
    """The card is closed: whoever was told hears how."""
    _tell(tx, call, kind="settled", now=now, extra={"status": status})


def _tell(tx: Tx, call: Call, *, kind: str, now: datetime, extra: JsonObject) -> None:
    rung = extra.get("rung")
    payload: JsonObject = {
        "toolCallId": call.id,
        "toolName": call.name,
        "runId": call.run_id,
        "threadId": call.thread_id,
        "approver": call.approver,
        "requester": call.actor_id,
        "agent": call.agent_name,
        **extra,
    }
    tx.put_outbox(
        OutboxEntry(
            id=f"{call.id}:{kind}" if rung is None else f"{call.id}:{kind}:{rung}",
            tenant=call.tenant,
            call_id=call.id,
            kind=kind,
            payload=payload,
            attempts=0,
            due_at=now,
        )
    )
