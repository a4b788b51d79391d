"""Answer a card: one conditional write with its audit row and the run's signal."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from signoff.domain.actor import Actor
from signoff.domain.approval import REQUESTER, Decision, Remembered, Verdict, Vote
from signoff.domain.audit import AuditKind
from signoff.domain.call import OPEN, Call, CallStatus, ToolKind
from signoff.domain.elicitation import parse_question_set
from signoff.domain.frame import instant, without_none
from signoff.domain.jsonvalue import Json, JsonObject, normalise
from signoff.elicitation.questions import answered, skipped, validate_answers
from signoff.errors import (
    AlreadyDecided,
    CardChanged,
    Expired,
    Forbidden,
    InvalidInput,
    LinkSpent,
    NotFound,
    RunNotActive,
    SignoffError,
    WrongKind,
)
from signoff.ports.engine import SignalOutcome
from signoff.ports.store import CallChanges, Tx
from signoff.service.deps import Deps
from signoff.service.edit import Edited, check_edit
from signoff.service.standing import already_decided, closed, may_decide
from signoff.turn.card import approval_requested, doubt_round, signal_name

VIA_LENGTH_MAX = 64


class Verb(StrEnum):
    """The five routes of a decision."""

    APPROVE = "approve"
    REJECT = "reject"
    ANSWER = "answer"
    SKIP = "skip"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The decision link that a decision uses up, made in the card's `round`-th time in doubt (0: before any)."""

    id: str
    round: int


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
    output: Json = None
    link: LinkUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was recorded. `complete` is false while a quorum still lacks votes (`have` of `needed`)."""

    decision: Decision
    complete: bool = True
    have: int = 1
    needed: int = 1


async def decide(deps: Deps, actor: Actor, request: DecisionRequest, *, by_port: bool = False) -> Decided:
    """Record the answer and wake the run that asked.

    `by_port`: the caller guards its own door (a console behind `ApprovalPort`); the actor's right to decide is
    not checked again, everything else is the same.

    Raises:
        InvalidInput: bad reason, via, answers or arguments (the card stays open).
        NotFound: no such call, or `run_id` names another run.
        Forbidden: the actor is not an approver of this card (the attempt is recorded).
        WrongKind: a question on the approval's route, or the reverse.
        AlreadyDecided: another answer stands.
        Expired: at or after the deadline.
        RunNotActive: the asking run has ended.
        CardChanged: `digest` is not the card's; or it is missing where an action in doubt would run again.
        LinkSpent: the link was used.
    """
    _check(deps, request)
    edited = None
    if request.arguments is not None:
        call = await deps.store.read(lambda tx: _look(deps, tx, actor, request, by_port=by_port))
        edited = await check_edit(deps, actor, call, request.arguments, by_port=by_port)
    result = await deps.store.transact(
        f"decide:{request.verb.value}",
        lambda tx: _decide(deps, tx, actor, request, edited, by_port=by_port),
    )
    if isinstance(result, SignoffError):
        raise result
    return result


async def decide_many(deps: Deps, actor: Actor, requests: Sequence[DecisionRequest]) -> list[Decided | SignoffError]:
    """One outcome per request, in order; a refused one changes nothing for the others."""
    outcomes: list[Decided | SignoffError] = []
    for request in requests:
        try:
            outcomes.append(await decide(deps, actor, request))
        except SignoffError as error:
            outcomes.append(error)
    return outcomes


def _check(deps: Deps, request: DecisionRequest) -> None:
    """What can be refused without looking at a row."""
    if not 1 <= len(request.via) <= VIA_LENGTH_MAX:
        raise InvalidInput(f"via must have 1-{VIA_LENGTH_MAX} characters", field="via")
    if request.reason is not None and len(request.reason) > deps.limits.reason_max:
        raise InvalidInput(f"reason has more than {deps.limits.reason_max} characters", field="reason")
    if request.arguments is not None:
        normalise(request.arguments, what="arguments", bytes_max=deps.limits.arguments_bytes_max)
    if request.verb is Verb.SETTLE:
        normalise(request.output, what="output", bytes_max=deps.limits.output_bytes_max)


def _look(deps: Deps, tx: Tx, actor: Actor, request: DecisionRequest, *, by_port: bool) -> Call:
    """The card, if the actor may decide it. Rights come before any state (C51)."""
    call = tx.call(request.call_id)
    if call is None or (request.run_id is not None and request.run_id != call.run_id):
        raise NotFound("call", request.call_id)
    if not by_port and not may_decide(deps, actor, call):
        raise Forbidden("you are not an approver of this request")
    return call


def _decide(
    deps: Deps, tx: Tx, actor: Actor, request: DecisionRequest, edited: Edited | None, *, by_port: bool
) -> Decided | SignoffError:
    """Look, decide, record, signal: one transaction. A refusal that must be on record is returned, not raised."""
    now = deps.clock.now()
    try:
        call = _look(deps, tx, actor, request, by_port=by_port)
    except Forbidden as forbidden:
        known = tx.call(request.call_id)
        if known is not None:
            _audit_refusal(tx, known, actor, request, forbidden, now)
        return forbidden
    refusal = _refusal(tx, call, actor, request, now)
    if refusal is not None:
        if call.is_open or isinstance(refusal, Expired):
            _audit_refusal(tx, call, actor, request, refusal, now)
        return refusal
    if request.link is not None and not tx.use_link(request.link.id, call_id=call.id, at=now):
        return LinkSpent("this link was used")
    if request.verb is Verb.APPROVE and call.kind is ToolKind.ACTION and call.quorum > 1 and call.in_doubt is None:
        votes = _vote(tx, call, actor, request, now)
        if isinstance(votes, SignoffError):
            return votes
        if votes < call.quorum:
            tx.emit(_stream_of(tx, call), [approval_requested(call, votes=votes)])
            return Decided(
                decision=_decision(call, actor, request, now), complete=False, have=votes, needed=call.quorum
            )
    return _settle(deps, tx, call, actor, request, edited, now)


def _refusal(tx: Tx, call: Call, actor: Actor, request: DecisionRequest, now: datetime) -> SignoffError | None:
    """Why this answer cannot be taken, if it cannot."""
    refusal = closed(tx, call, now)
    if refusal is not None:
        if isinstance(refusal, Expired):
            # The card is closed here as well: no sweep has to come by for that (C33).
            tx.change_call(call.id, expect=OPEN, status=CallStatus.EXPIRED)
        return refusal
    is_question = call.kind is ToolKind.ASK
    match request.verb:
        case Verb.ANSWER | Verb.SKIP if not is_question:
            return WrongKind("this request is approved or rejected, it asks no questions")
        case Verb.SETTLE if call.status is not CallStatus.IN_DOUBT:
            return WrongKind("only an action whose outcome is unknown can be settled")
        case _:
            pass
    stale = request.link is not None and request.link.round != doubt_round(call)
    if stale or (request.digest is not None and request.digest != call.shown_digest):
        return CardChanged(call.id, call.shown_digest)
    if request.verb is Verb.APPROVE and call.status is CallStatus.IN_DOUBT and request.digest is None:
        # A click on the first card that is repeated, by a person or by a network, must not run the action again.
        return CardChanged(call.id, call.shown_digest)
    if request.verb is Verb.APPROVE and not call.may_requester and actor.id == call.actor_id:
        return Forbidden("whoever asked for this cannot approve it")
    return None


def _vote(tx: Tx, call: Call, actor: Actor, request: DecisionRequest, now: datetime) -> int | SignoffError:
    """Count this person's yes; the number of votes, or the refusal of a second one."""
    if not tx.add_vote(Vote(call_id=call.id, actor_id=actor.id, via=request.via, at=now)):
        return AlreadyDecided(call.id, status="voted", decided_by=actor.id)
    votes = len(tx.votes_of(call.id))
    _audit(tx, call, actor, AuditKind.VOTED, now, have=votes, needed=call.quorum, via=request.via)
    return votes


def _settle(
    deps: Deps, tx: Tx, call: Call, actor: Actor, request: DecisionRequest, edited: Edited | None, now: datetime
) -> Decided | SignoffError:
    """The conditional write that only one answer wins, its audit row and the run's signal."""
    decision = _decision(call, actor, request, now)
    payload: JsonObject = {
        "verdict": decision.verdict.value,
        "by": actor.id,
        "via": request.via,
        "at": instant(now),
        "reason": request.reason,
    }
    changes: CallChanges
    if call.status is CallStatus.IN_DOUBT:  # whoever approved it stays its decider
        changes = {"in_doubt": _resolved(call, decision)}
    else:
        changes = {
            "decided_by": actor.id,
            "decided_via": request.via,
            "decided_at": now,
            "decision_reason": request.reason,
            "remember": request.remember,
        }
    match decision.verdict:
        case Verdict.ANSWERED | Verdict.SKIPPED:
            outcome = _answers(call, actor, request, decision.verdict)
            payload["outcome"] = outcome
            changes["status"] = CallStatus.APPROVED
        case Verdict.SETTLED:
            payload["output"] = request.output
            changes["status"] = CallStatus.RUNNING
        case Verdict.REJECTED if call.status is CallStatus.IN_DOUBT:
            changes["status"] = CallStatus.RUNNING  # it may have happened: the run records that nobody knows
        case Verdict.REJECTED:
            changes["status"] = CallStatus.REJECTED
        case Verdict.APPROVED:
            changes["status"] = CallStatus.APPROVED
            if edited is not None:
                changes["edited_arguments"] = edited.arguments
                changes["digest"] = edited.digest
        case _:
            assert_never(decision.verdict)
    if not tx.decide_call(call.id, expect=frozenset({call.status}), now=now, **changes):
        standing = tx.call(call.id) or call
        return already_decided(standing)
    _audit_decision(tx, call, actor, request, decision, edited, now)
    if decision.verdict is Verdict.APPROVED and request.remember and call.kind is ToolKind.ACTION:
        tx.remember(
            Remembered(
                thread_id=call.thread_id, tool=call.name, by=actor.id, approver=call.approver or REQUESTER, at=now
            )
        )
    name = signal_name(call)
    match deps.runner.signal(tx, call.run_id, name, payload, dedup_key=name):
        case SignalOutcome.ACCEPTED | SignalOutcome.DUPLICATE:
            have = len(tx.votes_of(call.id)) if call.quorum > 1 else 1
            return Decided(decision=decision, have=max(1, have), needed=call.quorum)
        case SignalOutcome.TERMINAL | SignalOutcome.UNKNOWN:
            raise RunNotActive(call.run_id)


def _decision(call: Call, actor: Actor, request: DecisionRequest, now: datetime) -> Decision:
    return Decision(
        call_id=call.id,
        verdict=_verdict(call, request.verb),
        by=actor.id,
        via=request.via,
        at=now,
        reason=request.reason,
        remember=request.remember,
        arguments=request.arguments,
        answers=request.answers,
        output=request.output,
    )


def _resolved(call: Call, decision: Decision) -> JsonObject:
    """The facts of a doubt with what a person has made of it."""
    return {
        **(call.in_doubt or {}),
        **without_none(
            resolution=decision.verdict.value,
            resolvedBy=decision.by,
            resolvedVia=decision.via,
            resolvedAt=instant(decision.at),
            reason=decision.reason,
        ),
    }


def _verdict(call: Call, verb: Verb) -> Verdict:
    """What the route means for this card: approving a question set confirms its defaults, rejecting skips it."""
    is_question = call.kind is ToolKind.ASK
    match verb:
        case Verb.APPROVE:
            return Verdict.ANSWERED if is_question else Verdict.APPROVED
        case Verb.REJECT:
            return Verdict.SKIPPED if is_question else Verdict.REJECTED
        case Verb.ANSWER:
            return Verdict.ANSWERED
        case Verb.SKIP:
            return Verdict.SKIPPED
        case Verb.SETTLE:
            return Verdict.SETTLED
        case _:
            assert_never(verb)


def _answers(call: Call, actor: Actor, request: DecisionRequest, verdict: Verdict) -> Json:
    """The outcome of a question set, validated at the door: what is stored can always be read back (C23)."""
    asked = parse_question_set(call.request)
    if verdict is Verdict.SKIPPED:
        return skipped(asked, by=actor.id, via=request.via).as_json()
    given: Json = None if request.answers is None else {key: [*values] for key, values in request.answers.items()}
    return answered(asked, validate_answers(asked, given), by=actor.id, via=request.via).as_json()


_AUDITED = {
    Verdict.APPROVED: AuditKind.APPROVED,
    Verdict.REJECTED: AuditKind.REJECTED,
    Verdict.ANSWERED: AuditKind.ANSWERED,
    Verdict.SKIPPED: AuditKind.SKIPPED,
    Verdict.SETTLED: AuditKind.RESOLVED,
}


def _audit_decision(
    tx: Tx,
    call: Call,
    actor: Actor,
    request: DecisionRequest,
    decision: Decision,
    edited: Edited | None,
    now: datetime,
) -> None:
    in_doubt = call.status is CallStatus.IN_DOUBT
    _audit(
        tx,
        call,
        actor,
        AuditKind.RESOLVED if in_doubt else _AUDITED[decision.verdict],
        now,
        verdict=decision.verdict.value,
        via=request.via,
        reason=request.reason,
        remember=True if request.remember else None,
        digest=call.digest if edited is None else edited.digest,
        shown=call.arguments if edited is not None else None,
        edited=edited.arguments if edited is not None else None,
        changed=edited.diff if edited is not None else None,
        output=request.output if decision.verdict is Verdict.SETTLED else None,
    )


def _audit_refusal(
    tx: Tx, call: Call, actor: Actor, request: DecisionRequest, refusal: SignoffError, now: datetime
) -> None:
    _audit(tx, call, actor, AuditKind.REFUSED, now, attempted=request.verb.value, via=request.via, code=refusal.code)


def _audit(tx: Tx, call: Call, actor: Actor, kind: AuditKind, now: datetime, **data: Json) -> None:
    tx.append_audit(
        tenant=call.tenant,
        at=now,
        kind=kind,
        run_id=call.run_id,
        call_id=call.id,
        actor_id=actor.id,
        data=without_none(tool=call.name, **data),
    )


def _stream_of(tx: Tx, call: Call) -> str:
    run = tx.run(call.run_id)
    return call.run_id if run is None else run.stream_id
