"""An authored question set that comes before the first step (the seeds' intake)."""

from signoff.domain import frame
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.thread import Message, Role
from signoff.ports.engine import Context, nothing
from signoff.ports.store import Tx
from signoff.turn.ask import open_question
from signoff.turn.bookkeeping import Books, Facts
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.outcome import Answered


async def ask_first(ctx: Context, deps: TurnDeps, turn: TurnInput, books: Books, facts: Facts) -> None:
    """Ask the agent's intake, if it has one that is due, and keep the answers where the model reads them."""
    if facts.intake is None:
        return
    request = facts.intake
    call_id = f"intake-{turn.run_id}"
    await ctx.record("intake:ask", lambda tx, _: _open(tx, deps, turn, request, call_id), compute=nothing)
    payload = await ctx.wait_for_signal(f"tool:{turn.run_id}:{call_id}")
    answered = Answered.from_payload(payload)
    keep = books.outcome_writer(call_id, answered)

    def write(tx: Tx, _: None) -> Json:
        kept = keep(tx, None)
        if not turn.is_nested:
            tx.emit(turn.stream_id, [frame.step_finish(usage=None, cost_usd=None, model=None)])
        return kept

    await ctx.record("intake:answers", write, compute=nothing)


def _open(tx: Tx, deps: TurnDeps, turn: TurnInput, request: JsonObject, call_id: str) -> Json:
    now = deps.clock.now()
    message = Message(
        id=deps.ids.new("msg"),
        thread_id=turn.thread_id,
        role=Role.ASSISTANT,
        content="",
        run_id=turn.run_id,
        agent_name=turn.agent,
        created_at=now,
    )
    tx.insert_message(message)
    if not turn.is_nested:
        tx.emit(turn.stream_id, [frame.step_start()])
    shown = {name: value for name, value in as_object(request, what="an intake").items() if name != "source"}
    call = Call(
        id=call_id,
        run_id=turn.run_id,
        thread_id=turn.thread_id,
        message_id=message.id,
        step=-1,
        index=0,
        name="ask",
        kind=ToolKind.ASK,
        arguments=shown,
        status=CallStatus.PENDING,
        actor_id=turn.actor.id,
        tenant=turn.actor.tenant,
        agent_name=turn.agent,
        parent_call_id=turn.parent_call_id,
        created_at=now,
        request={**shown, "source": "intake"},
    )
    return open_question(tx, deps, turn, call, parent_id=turn.parent_call_id)
