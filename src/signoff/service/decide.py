"""Answer a card: one conditional write with its audit row and the run's signal."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from signoff.domain.actor import Actor
from signoff.domain.approval import Decision
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import SignoffError
from signoff.service.deps import Deps


class Verb(StrEnum):
    """The five routes of a decision."""

    APPROVE = "approve"
    REJECT = "reject"
    ANSWER = "answer"
    SKIP = "skip"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """A person's answer (WIRE 2.2). `run_id`, when present, must name the run that asks; `via` has 1-64 characters."""

    call_id: str
    verb: Verb
    run_id: str | None = None
    via: str = "web"
    reason: str | None = None
    remember: bool = False
    arguments: JsonObject | None = None
    digest: str | None = None
    answers: dict[str, list[str]] | None = None
    output: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was recorded. `complete` is false while a quorum still lacks votes (`have` of `needed`)."""

    decision: Decision
    complete: bool = True
    have: int = 1
    needed: int = 1


async def decide(deps: Deps, actor: Actor, request: DecisionRequest) -> Decided:
    """Record the answer and wake the run that asked.

    Raises:
        InvalidInput: bad reason, via, answers or arguments (the card stays open).
        NotFound: no such call, or `run_id` names another run.
        Forbidden: the actor is not an approver of this card (the attempt is recorded).
        WrongKind: a question on the approval's route, or the reverse.
        AlreadyDecided: another answer stands.
        Expired: at or after the deadline.
        RunNotActive: the asking run has ended.
        CardChanged: `digest` is not the card's.
    """
    raise NotImplementedError


async def decide_many(deps: Deps, actor: Actor, requests: Sequence[DecisionRequest]) -> list[Decided | SignoffError]:
    """One outcome per request, in order; a refused one changes nothing for the others."""
    raise NotImplementedError
