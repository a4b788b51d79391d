"""Edited arguments of an approval: nothing runs that schema, preflight and gate have not seen."""

from dataclasses import dataclass

from signoff.approvals.preflight import Denied, Done, Ready, run_preflight
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InvalidInput, WrongKind
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


async def check_edit(deps: Deps, call: Call, arguments: JsonObject) -> Edited:
    """Let the edited arguments pass the same checks as the model's own.

    Raises:
        InvalidInput: the tool's schema, the gate or its preflight refuses them; the card stays open.
        WrongKind: this card has no arguments to edit.
    """
    if call.kind is not ToolKind.ACTION or call.status is not CallStatus.PENDING:
        raise WrongKind("only an action that waits for its first approval can be edited")

    def load(tx: Tx) -> TurnInput | None:
        run = tx.run(call.run_id)
        return None if run is None else TurnInput.of(run)

    turn = await deps.store.read(load)
    agent = None if turn is None else deps.agents.get(turn.agent)
    if turn is None or agent is None:
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
            what = digest_of(tool=tool.name, schema_version=tool.schema_version, arguments=bound.arguments)
            return Edited(arguments=bound.arguments, digest=what, diff=_diff(call.arguments, bound.arguments))


def _diff(before: Json, after: JsonObject) -> JsonObject:
    old = before if isinstance(before, dict) else {}
    names = sorted({*old, *after})
    return {name: [old.get(name), after.get(name)] for name in names if old.get(name) != after.get(name)}
