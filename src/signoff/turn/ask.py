"""Questions that a tool asks in the middle of its work: a card of their own, and the run waits for it."""

from signoff.domain import frame
from signoff.domain.call import FINAL, Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import Json
from signoff.ports.engine import Context, nothing
from signoff.ports.store import Tx
from signoff.turn import card
from signoff.turn.bookkeeping import Books
from signoff.turn.claim import RequestedCall
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.outcome import Answered, Questioned


async def ask_for_tool(
    ctx: Context, deps: TurnDeps, turn: TurnInput, books: Books, asking: RequestedCall, asked: Questioned
) -> Json:
    """Put the tool's questions to the user and return the outcome (WIRE 6.4), answered or skipped."""
    call_id = f"{asking.id}.q{asked.index}"
    await ctx.record(
        f"stream:elicitation:{call_id}",
        lambda tx, _: open_question(
            tx, deps, turn, question_call(deps, turn, asking, asked, call_id), parent_id=asking.id
        ),
        compute=nothing,
    )
    answered = Answered.from_payload(await ctx.wait_for_signal(f"tool:{turn.run_id}:{call_id}"))
    await ctx.record(f"persist:toolexec:{call_id}", books.outcome_writer(call_id, answered), compute=nothing)
    return answered.answers


def question_call(deps: TurnDeps, turn: TurnInput, asking: RequestedCall, asked: Questioned, call_id: str) -> Call:
    """The card's row. Its negative index keeps it out of prompts: the model did not ask for it."""
    return Call(
        id=call_id,
        run_id=turn.run_id,
        thread_id=turn.thread_id,
        message_id=asking.message_id,
        step=asking.step,
        index=-1 - asked.index,
        name="ask",
        kind=ToolKind.ASK,
        arguments=asked.request,
        status=CallStatus.PENDING,
        actor_id=turn.actor.id,
        tenant=turn.actor.tenant,
        agent_name=turn.agent,
        parent_call_id=asking.id,
        created_at=deps.clock.now(),
        request=asked.request,
    )


def open_question(tx: Tx, deps: TurnDeps, turn: TurnInput, call: Call, *, parent_id: str | None) -> Json:
    """Store the card of a question set and show it: announced as tool `ask`, then the form (WIRE 5.8)."""
    existing = tx.call(call.id)
    if existing is not None and existing.status in FINAL:
        return None
    tx.insert_call(call)
    tx.emit(
        turn.stream_id,
        [
            frame.tool_input_available(
                call_id=call.id, name=call.name, arguments=call.arguments, kind=call.kind, parent_id=parent_id
            ),
            card.elicitation(call),
        ],
    )
    card.put_to_person(tx, call, deps=deps, now=call.created_at, requirement=None)
    return None
