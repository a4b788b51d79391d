"""`persist:toolcall:<callId>`: everything that is decided about a call before it runs, in one checkpoint.

Kind, requirement and preflight are answered here, at first sight, and read from the journal afterwards: a process
that never declared the tool still parks an action on its signal, and a policy that changes later changes nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from signoff.agents.agent import Agent
from signoff.approvals.preflight import Denied, Done, Ready, run_preflight
from signoff.approvals.requirement import resolve_requirement
from signoff.domain import frame
from signoff.domain.approval import Remembered, Requirement, RungAction
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.elicitation import parse_question_set
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.thread import Thread
from signoff.errors import InvalidInput
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.tools.arguments import InvalidArguments, parse_arguments
from signoff.tools.gate import Admitted, Refused, admit
from signoff.turn import card, delegate
from signoff.turn.access import access_of
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.tool_context import tool_context
from signoff.turn.tool_outcome import plain


class Next(StrEnum):
    """What the loop does with a claimed call."""

    RUN = "run"
    WAIT = "wait"
    ASK = "ask"
    DELEGATE = "delegate"
    DETACH = "detach"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RungPlan:
    """A rung with its absolute time."""

    at: datetime
    action: RungAction
    role: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the checkpoint says about a call. Instants are aware UTC."""

    next: Next
    kind: ToolKind
    idempotent: bool = False
    has_probe: bool = False
    expires_at: datetime | None = None
    ladder: tuple[RungPlan, ...] = ()
    child: JsonObject | None = None

    def to_json(self) -> JsonObject:
        """The journaled form."""
        return {
            "next": self.next.value,
            "kind": self.kind.value,
            "idempotent": self.idempotent,
            "probe": self.has_probe,
            "expiresAt": None if self.expires_at is None else self.expires_at.isoformat(),
            "ladder": [
                {"at": rung.at.isoformat(), "action": rung.action.value, "role": rung.role} for rung in self.ladder
            ],
            "child": self.child,
        }

    @classmethod
    def from_json(cls, value: Json) -> "Claim":
        """The inverse of `to_json`."""
        claim = as_object(value, what="a claim")
        expires_at = claim.get("expiresAt")
        child = claim.get("child")
        ladder = claim.get("ladder")
        return cls(
            next=Next(str(claim["next"])),
            kind=ToolKind(str(claim["kind"])),
            idempotent=claim.get("idempotent") is True,
            has_probe=claim.get("probe") is True,
            expires_at=None if expires_at is None else datetime.fromisoformat(str(expires_at)),
            ladder=tuple(_rung(item) for item in ladder) if isinstance(ladder, list) else (),
            child=None if child is None else as_object(child, what="a claim's child"),
        )


def _rung(value: Json) -> RungPlan:
    rung = as_object(value, what="a rung")
    role = rung.get("role")
    return RungPlan(
        at=datetime.fromisoformat(str(rung["at"])),
        action=RungAction(str(rung["action"])),
        role=None if role is None else str(role),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """A call as a model step asked for it; `arguments` is the text the model wrote."""

    id: str
    provider_id: str
    name: str
    arguments: str
    index: int
    step: int
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answers of `compute`, handed to `write`: the call's row, and what it needs."""

    call: Call
    next: Next
    idempotent: bool = False
    has_probe: bool = False
    requirement: Requirement | None = None
    child: delegate.ChildPlan | None = None


async def plan(deps: TurnDeps, turn: TurnInput, asked: RequestedCall) -> Plan:
    """Ask everyone who has a say: the gate, the preflight, the policy. Reads only."""
    draft = _draft(deps, turn, asked)
    agent = deps.agents.get(turn.agent)
    if agent is None:
        return _refused(draft, f"the agent {turn.agent!r} is no longer available")
    match await admit(agent.toolset, access_of(deps, agent, turn), asked.name, asked.arguments):
        case Refused(text=text):
            return _refused(draft, text)
        case Admitted(tool=tool, bound=bound):
            # A card shows what will run: defaults the model left out are part of that.
            shown = bound.complete() if tool.kind is ToolKind.ACTION else bound.arguments
            draft = replace(
                draft,
                kind=tool.kind,
                arguments=shown,
                schema_version=tool.schema_version,
                digest=card.digest_of(tool=tool.name, schema_version=tool.schema_version, arguments=shown),
            )
            match tool.kind:
                case ToolKind.READ:
                    return Plan(call=draft, next=Next.RUN, idempotent=True)
                case ToolKind.ASK:
                    return _question(draft, bound.arguments)
                case ToolKind.AGENT:
                    return await _delegation(deps, turn, agent, draft)
                case ToolKind.ACTION:
                    return await _action(deps, turn, draft, admitted=Admitted(tool=tool, bound=bound))


def write(deps: TurnDeps, turn: TurnInput, tx: Tx, planned: Plan) -> Json:
    """Store the call and its frames; returns the claim that every replay reads."""
    now = deps.clock.now()
    call, next_ = planned.call, planned.next
    remembered = _covering(tx, call) if next_ is Next.WAIT else None
    if remembered is not None:
        next_ = Next.RUN
        call = replace(
            call,
            status=CallStatus.APPROVED,
            approver=remembered.approver,
            decided_by=remembered.by,
            decided_via="remembered",
            decided_at=now,
            remember=True,
            expires_at=None,
        )
    call = replace(call, created_at=now, child_run_id=planned.child.run_id if planned.child else None)
    tx.insert_call(call)
    frames: list[Frame] = [
        frame.tool_input_available(
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            kind=call.kind,
            parent_id=call.parent_call_id,
        )
    ]
    match next_:
        case Next.WAIT:
            frames.append(card.approval_requested(call))
            card.put_to_person(tx, call, deps=deps, now=now, requirement=planned.requirement)
        case Next.ASK:
            frames.append(card.elicitation(call))
            card.put_to_person(tx, call, deps=deps, now=now, requirement=None)
        case Next.RUN if remembered is not None:
            frames.append(card.approval_settled(call, status="approved", remember=True))
        case Next.SETTLED if call.error is not None:
            frames.append(frame.tool_output_error(call_id=call.id, error=call.error))
        case Next.SETTLED:
            frames.append(frame.tool_output(call_id=call.id, output=call.output))
        case Next.DELEGATE | Next.DETACH if planned.child is not None:
            delegate.insert_child(tx, planned.child, now=now)
        case Next.RUN | Next.DELEGATE | Next.DETACH:
            pass
    tx.emit(turn.stream_id, frames)
    deps.events.emit_on_commit(
        tx,
        EventName.TOOL_CALL,
        run_id=call.run_id,
        thread_id=call.thread_id,
        call_id=call.id,
        tool=call.name,
        kind=call.kind.value,
        status=call.status.value,
    )
    ladder = planned.requirement.ladder if planned.requirement is not None and next_ is Next.WAIT else ()
    return Claim(
        next=next_,
        kind=call.kind,
        idempotent=planned.idempotent,
        has_probe=planned.has_probe,
        expires_at=call.expires_at,
        ladder=tuple(
            RungPlan(at=now + rung.after, action=rung.action, role=rung.role)
            for rung in sorted(ladder, key=lambda rung: rung.after)
        ),
        child=planned.child.turn.to_json() if planned.child else None,
    ).to_json()


def _covering(tx: Tx, call: Call) -> Remembered | None:
    """The remembered approval that covers this call, if one does.

    It stands for the approver who gave it: where the policy asks somebody else, or more than one, people are asked.
    """
    found = tx.remembered(thread_id=call.thread_id, tool=call.name)
    if found is None or found.approver != call.approver or call.quorum > 1:
        return None
    return found if call.may_requester or found.by != call.actor_id else None


def _draft(deps: TurnDeps, turn: TurnInput, asked: RequestedCall) -> Call:
    try:
        arguments: Json = parse_arguments(asked.arguments)
    except InvalidArguments:
        arguments = asked.arguments
    return Call(
        id=asked.id,
        run_id=turn.run_id,
        thread_id=turn.thread_id,
        message_id=asked.message_id,
        step=asked.step,
        index=asked.index,
        provider_id=asked.provider_id,
        name=asked.name,
        kind=ToolKind.READ,
        arguments=arguments,
        status=CallStatus.RUNNING,
        actor_id=turn.actor.id,
        tenant=turn.actor.tenant,
        agent_name=turn.agent,
        parent_call_id=turn.parent_call_id,
        created_at=deps.clock.now(),
    )


def _refused(draft: Call, text: str) -> Plan:
    failed = replace(draft, status=CallStatus.FAILED, error=text, output={"error": text}, ended_at=draft.created_at)
    return Plan(call=failed, next=Next.SETTLED)


def _question(draft: Call, arguments: JsonObject) -> Plan:
    try:
        parse_question_set(arguments)
    except InvalidInput as error:
        return _refused(draft, str(error))
    return Plan(call=replace(draft, status=CallStatus.PENDING, request=arguments), next=Next.ASK)


async def _delegation(deps: TurnDeps, turn: TurnInput, agent: Agent, draft: Call) -> Plan:
    planned = await delegate.plan(deps, turn, agent, draft)
    if isinstance(planned, str):
        return _refused(draft, planned)
    return Plan(call=draft, next=Next.DETACH if planned.turn.detached else Next.DELEGATE, child=planned)


async def _action(deps: TurnDeps, turn: TurnInput, draft: Call, *, admitted: Admitted) -> Plan:
    tool = admitted.tool
    checked = await run_preflight(
        tool.prepare,
        admitted.bound,
        tool_context(deps, turn, draft),
        clock=deps.clock,
        timeout=deps.settings.tool_timeout,
        output_bytes_max=deps.settings.output_bytes_max,
    )
    match checked:
        case Denied(reason=reason):
            return _refused(draft, reason)
        case Done(output=output):
            done = replace(draft, status=CallStatus.COMPLETED, output=plain(output), ended_at=draft.created_at)
            return Plan(call=done, next=Next.SETTLED)
        case Ready(confirmation=wording, target=target):
            confirmation = None if wording is None else wording.as_json()
            draft = replace(draft, confirmation=confirmation, target=target or tool.target)
    thread = await deps.store.peek(lambda tx: tx.thread(draft.thread_id))
    requirement = await resolve_requirement(
        deps.policy, draft, tool, turn.actor, _present(thread, draft), clock=deps.clock
    )
    if not requirement.required:
        return Plan(
            call=replace(draft, status=CallStatus.APPROVED, decided_via="policy"),
            next=Next.RUN,
            idempotent=tool.idempotent,
            has_probe=tool.probe is not None,
        )
    waiting = replace(
        draft,
        status=CallStatus.PENDING,
        approver=requirement.approver,
        quorum=requirement.quorum,
        may_requester=requirement.may_requester,
        request_reason=requirement.reason,
        expires_at=None if requirement.ttl is None else deps.clock.now() + requirement.ttl,
    )
    return Plan(
        call=waiting,
        next=Next.WAIT,
        requirement=requirement,
        idempotent=tool.idempotent,
        has_probe=tool.probe is not None,
    )


def _present(thread: Thread | None, draft: Call) -> Thread:
    if thread is None:
        raise LookupError(f"thread {draft.thread_id!r} of an active run is gone")
    return thread


def deadline_grace_over(call: Call, *, now: datetime, grace: timedelta) -> bool:
    """Whether an approval that was given in time has become too old to act on (C34)."""
    return call.expires_at is not None and now >= call.expires_at + grace
