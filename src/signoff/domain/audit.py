"""The append-only record for those who answer for what agents did."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from signoff.domain.jsonvalue import JsonObject, digest


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """The last row of a tenant's chain."""

    tenant: str
    seq: int
    hash: str


def audit_row(entry: AuditEntry) -> JsonObject:
    """The row as it is exported: what its hash covers, and the hash."""
    return {**_covered(entry), "hash": entry.hash}


def expected_hash(entry: AuditEntry) -> str:
    """The hash that the row must carry, whatever it carries."""
    return digest(_covered(entry))


def _covered(entry: AuditEntry) -> JsonObject:
    return {
        "tenant": entry.tenant,
        "seq": entry.seq,
        "at": entry.at.isoformat(),
        "kind": entry.kind.value,
        "runId": entry.run_id,
        "callId": entry.call_id,
        "actorId": entry.actor_id,
        "data": entry.data,
        "previous": entry.previous,
    }


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
    return expected_hash(
        AuditEntry(
            tenant=tenant,
            seq=seq,
            at=at,
            kind=kind,
            run_id=run_id,
            call_id=call_id,
            actor_id=actor_id,
            data=data,
            previous=previous,
            hash="",
        )
    )
