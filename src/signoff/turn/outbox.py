"""Notifications leave through an outbox that is written with the card; `governance.delivery` empties it."""

from datetime import datetime

from signoff.domain.call import Call
from signoff.domain.frame import instant, without_none
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.store import OutboxEntry, Tx


def tell_requested(tx: Tx, call: Call, *, now: datetime) -> None:
    """Somebody is asked: tell the approvers."""
    _tell(tx, call, kind="requested", now=now)


def tell_escalated(tx: Tx, call: Call, *, kind: str, rung: int, role: str | None, now: datetime) -> None:
    """A rung of the ladder: `kind` is "reminded" or "widened"."""
    _tell(tx, call, kind=kind, now=now, rung=rung, role=role)


def tell_settled(tx: Tx, call: Call, *, status: str, now: datetime) -> None:
    """The card is closed: whoever was told hears how."""
    _tell(tx, call, kind="settled", now=now, status=status)


def _tell(tx: Tx, call: Call, *, kind: str, now: datetime, rung: int | None = None, **extra: Json) -> None:
    payload: JsonObject = without_none(
        toolCallId=call.id,
        toolName=call.name,
        runId=call.run_id,
        threadId=call.thread_id,
        approver=call.approver,
        requester=call.actor_id,
        agent=call.agent_name,
        at=instant(now),
        title=None if call.confirmation is None else call.confirmation.get("title"),
        reason=call.request_reason,
        expiresAt=None if call.expires_at is None else instant(call.expires_at),
        inDoubt=call.in_doubt,
        rung=rung,
        **extra,
    )
    tx.put_outbox(
        OutboxEntry(
            id=_entry_id(call, kind, rung),
            tenant=call.tenant,
            call_id=call.id,
            kind=kind,
            payload=payload,
            attempts=0,
            due_at=now,
        )
    )


def _entry_id(call: Call, kind: str, rung: int | None) -> str:
    """The same for the same occasion: receivers tell repeats from news by it. A card in doubt is asked anew."""
    parts = [call.id, kind]
    if rung is not None:
        parts.append(str(rung))
    if call.in_doubt is not None:
        parts.append(f"doubt-{call.in_doubt.get('round', 1)}")
    return ":".join(parts)
