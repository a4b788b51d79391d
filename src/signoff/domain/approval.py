"""What a call needs before it may run, and what people answered."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from signoff.domain.jsonvalue import Json, JsonObject

REQUESTER = "requester"


class RungAction(StrEnum):
    """What a rung of the ladder does when its time comes."""

    REMIND = "remind"
    WIDEN = "widen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """After `after` (counted from when the card was made) remind, or let holders of `role` decide as well."""

    after: timedelta
    action: RungAction = RungAction.REMIND
    role: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """The policy's answer for one call.

    `approver` is `"requester"` (the thread's own actor) or a role the decider must hold. `ttl` bounds the wait
    from the moment the card is made. `quorum` distinct people must say yes; one no ends it. With
    `may_requester` false the requester's own yes does not count (separation of duties). `reason` is shown on
    the card: why a person is asked.
    """

    required: bool = True
    approver: str = REQUESTER
    ttl: timedelta | None = None
    quorum: int = 1
    may_requester: bool = True
    reason: str | None = None
    ladder: tuple[Rung, ...] = ()


class Verdict(StrEnum):
    """A person's answer to a card. Only the explicit word approves."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer to one card, as recorded.

    `by` is the decider's actor id (not the requester's); `via` names the surface ("web", "slack", …, 1-64
    characters). `arguments` are edited arguments of an approval; `answers` those of a question set; `output`
    what a person says an in-doubt action returned.
    """

    call_id: str
    verdict: Verdict
    by: str
    via: str = "web"
    at: datetime
    reason: str | None = None
    remember: bool = False
    arguments: JsonObject | None = None
    answers: dict[str, list[str]] | None = None
    output: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's yes towards a quorum. One row a person and card."""

    call_id: str
    actor_id: str
    via: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """An approval that covers later calls of `tool` in `thread_id` which ask the same `approver`, and nobody else."""

    thread_id: str
    tool: str
    by: str
    approver: str
    at: datetime
