"""Edited arguments of an approval: nothing runs that schema, gate, preflight and policy have not seen."""

from dataclasses import dataclass, replace

from signoff.approvals.preflight import Denied, Done, Ready, run_preflight
from signoff.approvals.requirement import is_approver, resolve_requirement
from signoff.domain.actor import Actor
from signoff.domain.approval import REQUESTER, Requirement
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.thread import Thread
from signoff.errors import Forbidden, InvalidInput, WrongKind
from signoff.ports.store import Tx
from signoff.service.deps import Deps
from signoff.tools.gate import Admitted, Refused, admit
from signoff.turn.access import access_of
from signoff.turn.card import digest_of
from signoff.turn.input import TurnInput
from signoff.turn.tool_context import tool_context


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Arguments as a person changed them. `diff` maps each changed field to ``[before, after]``."""

    arguments: JsonObject
    digest: str
    diff: JsonObject


async def check_edit(deps: Deps, decider: Actor, call: Call, arguments: JsonObject, *, by_port: bool) -> Edited:
    """Let the edited arguments pass the same checks as the model's own; `decider` wants to approve them.

    Raises:
        InvalidInput: the tool's schema, the gate or its preflight refuses them, or it takes more than one person
            to approve them; the card stays open.
        Forbidden: with these arguments the policy asks somebody else.
        WrongKind: this card has no arguments to edit.
    """
    if call.kind is not ToolKind.ACTION or call.status is not CallStatus.PENDING:
        raise WrongKind("only an action that waits for its first approval can be edited")

    def load(tx: Tx) -> tuple[TurnInput | None, Thread | None]:
        run = tx.run(call.run_id)
        return None if run is None else TurnInput.of(run), tx.thread(call.thread_id)

    turn, thread = await deps.store.read(load)
    agent = None if turn is None else deps.agents.get(turn.agent)
    if turn is None or thread is None or agent is None:
        raise InvalidInput("the tool is not available here, so its arguments cannot be checked", field="arguments")
    match await admit(agent.toolset, access_of(deps.turn, agent, turn), call.name, arguments):
        case Refused(text=text):
            raise InvalidInput(f"arguments: {text}", field="arguments")
        case Admitted(tool=tool, bound=bound):
            checked = await run_preflight(
                tool.prepare,
                bound,
                tool_context(deps.turn, turn, call),
                clock=deps.clock,
                timeout=deps.turn.settings.tool_timeout,
                output_bytes_max=deps.turn.settings.output_bytes_max,
            )
            match checked:
                case Denied(reason=reason):
                    raise InvalidInput(f"arguments: {reason}", field="arguments")
                case Ready() | Done():
                    pass
            shown = bound.complete()
            changed = replace(call, arguments=shown)
            requirement = await resolve_requirement(deps.policy, changed, tool, turn.actor, thread, clock=deps.clock)
            _require_approver(deps, decider, changed, requirement, by_port=by_port)
            what = digest_of(tool=tool.name, schema_version=tool.schema_version, arguments=shown)
            return Edited(arguments=shown, digest=what, diff=_diff(call.arguments, shown))


def _require_approver(deps: Deps, decider: Actor, call: Call, requirement: Requirement, *, by_port: bool) -> None:
    """One person's yes must be enough for the call as it is now: else an edit would be a way around the policy."""
    if call.quorum > 1 or (requirement.required and requirement.quorum > 1):
        raise InvalidInput(
            "arguments: this takes more than one person, who must all see the same; reject it and say what to change",
            field="arguments",
        )
    if requirement.required and not requirement.may_requester and decider.id == call.actor_id:
        raise Forbidden("with these arguments, whoever asked for this cannot approve it")
    asked = call
    if requirement.required and requirement.approver not in (REQUESTER, call.approver):
        # Roles that the ladder let in were let in for what was asked first.
        asked = replace(call, approver=requirement.approver, widened=())
    if not by_port and not is_approver(deps.policy, decider, asked):
        raise Forbidden(f"with these arguments, {asked.approver!r} must approve it")


def _diff(before: Json, after: JsonObject) -> JsonObject:
    old = before if isinstance(before, dict) else {}
    names = sorted({*old, *after})
    return {name: [old.get(name), after.get(name)] for name in names if old.get(name) != after.get(name)}
