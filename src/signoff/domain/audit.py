"""The append-only record for those who answer for what agents did."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from signoff.domain.jsonvalue import Json, JsonObject, digest


class AuditKind(StrEnum):
    """What happened. One row each."""

    REQUESTED = "requested"
    VOTED = "voted"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    REMINDED = "reminded"
    WIDENED = "widened"
    EXECUTED = "executed"
    EXECUTION_FAILED = "execution_failed"
    MISMATCHED = "mismatched"
    IN_DOUBT = "in_doubt"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Row `seq` (from 1, per tenant) of a hash chain: `hash` covers the row and `previous`.

    `actor_id` is who did it (None: the system, e.g. an expiry). `data` holds facts, never secrets.
    """

    tenant: str
    seq: int
    at: datetime
    kind: AuditKind
    run_id: str | None
    call_id: str | None
    actor_id: str | None
    data: JsonObject
    previous: str
    hash: str


def audit_hash(
    *,
    tenant: str,
    seq: int,
    at: datetime,
    kind: AuditKind,
    run_id: str | None,
    call_id: str | None,
    actor_id: str | None,
    data: JsonObject,
    previous: str,
) -> str:
    """The hash that row `seq` must carry: SHA-256 over its canonical JSON, hexadecimal."""
    row: Json = {
        "tenant": tenant,
        "seq": seq,
        "at": at.isoformat(),
        "kind": kind.value,
        "runId": run_id,
        "callId": call_id,
        "actorId": actor_id,
        "data": data,
        "previous": previous,
    }
    return digest(row)
