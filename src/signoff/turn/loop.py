"""One turn: model, tools, model, until the model has nothing more to ask. Control flow only.

Every side effect and every read that steers goes through `ctx`, so a replay takes the same way. Suspension,
cancellation and divergence unwind through here untouched: nothing below catches `BaseException`, and no `finally`
writes or closes anything. The names of the checkpoints are the journal's schema (DESIGN section 3).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from signoff.domain.call import ToolKind
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ChildCancelled, InDoubt, SignalTimeout, StepFailed
from signoff.ports.engine import Context, Retry, Task, nothing
from signoff.turn import ask, bookkeeping, claim, intake
from signoff.turn.card import doubt_signal_name
from signoff.turn.claim import Claim, Next, RequestedCall
from signoff.turn.delegate import WORKFLOW
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.outcome import Answered, Completed, Declined, ExpiredUnanswered, Failed, Outcome, Questioned
from signoff.turn.reply import Reply
from signoff.turn.together import settle_all

PARALLEL_TOOLS = "agent:parallel-tools"
HISTORY_SELECT = "agent:history-select"

#: An action is never repeated silently: what a crash leaves open is put to a person.
_ONCE = Retry(attempts=1, repeatable=False)
_AGAIN = Retry(attempts=1, repeatable=True)
#: An idempotent action may run again, but it has an effect: none begins after a cancel was answered (C44).
_AGAIN_MARKED = Retry(attempts=1, repeatable=True, marked_first=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A call and what its claim checkpoint says about it."""

    call: RequestedCall
    claim: Claim

    @property
    def id(self) -> str:
        """The call's id."""
        return self.call.id


async def run_turn(ctx: Context, deps: TurnDeps, turn: TurnInput) -> Json:
    """Run the turn to its end; returns ``{"text"}``, the last thing the agent said.

    Raises:
        QuotaExceeded, StepFailed, ModelError: the turn failed; whoever runs the loop settles what it left.
    """
    books = bookkeeping.Books(deps, turn)
    # Launched in one tick: the positions are in this order, and the writes share one commit.
    parallel_tools, history_select = ctx.patched(PARALLEL_TOOLS), ctx.patched(HISTORY_SELECT)
    started = ctx.record("persist:run:start", books.start_run, compute=nothing)
    quota = ctx.record("quota:check", books.check_quota, compute=nothing)
    user = ctx.record("persist:user", books.keep_user_message, compute=nothing)
    title = ctx.record("persist:title", books.keep_title, compute=nothing)
    shape = Shape(parallel_tools=await parallel_tools, history_select=await history_select)
    history = books.list_history if shape.history_select else books.select_history
    window = ctx.record("history:window", history, compute=nothing)
    begun, checked, _, _, listed = await settle_all([started, quota, user, title, window])
    facts = bookkeeping.Facts.from_json(begun)
    bookkeeping.raise_if_spent(checked)
    # Runs of the older shape selected inside the checkpoint; since then it only lists what may be shown, and the
    # selection, being pure, happens here.
    from_seq = bookkeeping.select_window(listed, facts) if shape.history_select else int(str(listed))
    await intake.ask_first(ctx, deps, turn, books, facts)

    reply: Reply | None = None
    for step in range(facts.max_steps):
        ctx.raise_if_cancelled()
        task = _model_task(turn, facts, step=step, from_seq=from_seq, previous=reply)
        reply = Reply.from_json(await ctx.dispatch(f"llm:{step}", task, retry=deps.settings.model_retry))
        message_id = await ctx.record(f"persist:step:{step}", books.step_writer(step, reply), compute=nothing)
        if not reply.calls:
            return await _finish(ctx, books, reply.text)
        ctx.raise_if_cancelled()
        asked = [
            RequestedCall(
                id=call.id,
                provider_id=call.provider_id,
                name=call.name,
                arguments=call.arguments,
                index=index,
                step=step,
                message_id=str(message_id),
            )
            for index, call in enumerate(reply.calls)
        ]
        await _settle_calls(ctx, deps, turn, books, asked, shape)
    return await _finish(ctx, books, str(await ctx.record("persist:limit", books.limit_writer(reply), compute=nothing)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which of the loop's shapes this run's journal was begun with."""

    parallel_tools: bool
    history_select: bool


async def _finish(ctx: Context, books: bookkeeping.Books, text: str) -> Json:
    await ctx.record("persist:run:end", books.end_run, compute=nothing)
    return {"text": text}


def _model_task(turn: TurnInput, facts: bookkeeping.Facts, *, step: int, from_seq: int, previous: Reply | None) -> Task:
    """One model call, with all that a worker needs to make it. `previous` is the step that its first frame closes."""
    return Task(
        group="llm",
        input={
            "turn": turn.to_json(),
            "step": step,
            "fromSeq": from_seq,
            "today": facts.day,
            "closes": None if previous is None else previous.step_finish(),
        },
    )


# --- the calls of one step ------------------------------------------------------------------------------------


async def _settle_calls(
    ctx: Context,
    deps: TurnDeps,
    turn: TurnInput,
    books: bookkeeping.Books,
    asked: Sequence[RequestedCall],
    shape: Shape,
) -> None:
    """Give every call of the step exactly one outcome."""
    if not shape.parallel_tools:
        for call in asked:
            claimed = Claimed(call=call, claim=Claim.from_json(await _claim(ctx, deps, turn, call)))
            await _settle_reads(ctx, deps, turn, books, [claimed])
            await _settle_waiting(ctx, deps, turn, books, claimed)
        return
    claims = [Claimed(call=call, claim=Claim.from_json(await _claim(ctx, deps, turn, call))) for call in asked]
    ctx.raise_if_cancelled()
    await _settle_reads(ctx, deps, turn, books, claims)
    waiting = [claimed for claimed in claims if not _is_read(claimed) and claimed.claim.next is not Next.SETTLED]
    if waiting:
        await ctx.parallel([_branch(deps, turn, books, claimed) for claimed in waiting])


def _claim(ctx: Context, deps: TurnDeps, turn: TurnInput, call: RequestedCall) -> Awaitable[Json]:
    return ctx.record(
        f"persist:toolcall:{call.id}",
        lambda tx, planned: claim.write(deps, turn, tx, planned),
        compute=lambda: claim.plan(deps, turn, call),
    )


def _is_read(claimed: Claimed) -> bool:
    return claimed.claim.kind is ToolKind.READ and claimed.claim.next is Next.RUN


async def _settle_reads(
    ctx: Context, deps: TurnDeps, turn: TurnInput, books: bookkeeping.Books, claims: Sequence[Claimed]
) -> None:
    """Run the reads together; record their results in call order however they settle."""
    reads = [claimed for claimed in claims if _is_read(claimed)]
    if not reads:
        return
    outcomes = await ctx.parallel([_read_branch(deps, turn, books, claimed) for claimed in reads])
    for claimed, outcome in zip(reads, outcomes, strict=True):
        await _record_outcome(ctx, books, claimed, outcome)


def _read_branch(
    deps: TurnDeps, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed
) -> Callable[[Context], Awaitable[Outcome]]:
    async def run(ctx: Context) -> Outcome:
        return await _execute(ctx, deps, turn, books, claimed)

    return run


def _branch(
    deps: TurnDeps, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed
) -> Callable[[Context], Awaitable[None]]:
    async def run(ctx: Context) -> None:
        await _settle_waiting(ctx, deps, turn, books, claimed)

    return run


async def _settle_waiting(
    ctx: Context, deps: TurnDeps, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed
) -> None:
    """An action, a question or a delegation, from its claim to its recorded outcome."""
    match claimed.claim.next:
        case Next.SETTLED:
            return
        case Next.RUN if claimed.claim.kind is ToolKind.READ:
            return  # settled with the other reads
        case Next.RUN:
            outcome = await _execute(ctx, deps, turn, books, claimed)
        case Next.WAIT:
            outcome = await _act(ctx, deps, turn, books, claimed)
        case Next.ASK:
            payload = await ctx.wait_for_signal(f"tool:{turn.run_id}:{claimed.id}")
            outcome = Answered.from_payload(payload)
        case Next.DELEGATE:
            outcome = await _delegate(ctx, claimed)
        case Next.DETACH:
            outcome = await _detach(ctx, claimed)
        case _:
            assert_never(claimed.claim.next)
    await _record_outcome(ctx, books, claimed, outcome)


async def _record_outcome(ctx: Context, books: bookkeeping.Books, claimed: Claimed, outcome: Outcome) -> None:
    """One of `persist:toolexec`, `persist:toolreject`, `persist:toolfail`."""
    await ctx.record(f"{outcome.checkpoint}:{claimed.id}", books.outcome_writer(claimed.id, outcome), compute=nothing)


# --- one action -----------------------------------------------------------------------------------------------


async def _act(ctx: Context, deps: TurnDeps, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed) -> Outcome:
    """Wait for the decision, then run the action, or don't."""
    try:
        payload = await _await_decision(ctx, turn, books, claimed)
    except SignalTimeout:
        if await ctx.record(f"persist:expire:{claimed.id}", books.expire_writer(claimed.id), compute=nothing):
            return ExpiredUnanswered()
        # Somebody decided in time, while this run was on its way to expire the card: their signal is there.
        payload = await ctx.wait_for_signal(f"tool:{turn.run_id}:{claimed.id}")
    if not bookkeeping.is_approval(payload):
        return Declined.from_payload(payload)
    ctx.raise_if_cancelled()
    told = ctx.record(f"persist:approved:{claimed.id}", books.approval_writer(claimed.id), compute=nothing)
    return await _execute(ctx, deps, turn, books, claimed, told=told)


async def _await_decision(ctx: Context, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed) -> Json:
    """The decision, climbing the ladder while nobody decides.

    Raises:
        SignalTimeout: the card's deadline has passed.
    """
    signal = f"tool:{turn.run_id}:{claimed.id}"
    for number, rung in enumerate(claimed.claim.ladder):
        if claimed.claim.expires_at is not None and rung.at >= claimed.claim.expires_at:
            break
        try:
            return await ctx.wait_for_signal(signal, deadline=rung.at)
        except SignalTimeout:
            await ctx.record(
                f"persist:rung:{number}:{claimed.id}",
                books.rung_writer(claimed.id, number, rung),
                compute=nothing,
            )
    return await ctx.wait_for_signal(signal, deadline=claimed.claim.expires_at)


async def _execute(
    ctx: Context,
    deps: TurnDeps,
    turn: TurnInput,
    books: bookkeeping.Books,
    claimed: Claimed,
    *,
    told: Awaitable[Json] | None = None,
) -> Outcome:
    """Run the tool: once, unless it may be repeated; in doubt, a person says what happened.

    A tool that asks the user in the middle is run again from its start once the answers are there. `told` is
    bookkeeping that was launched right before: it shares the commit of the tool's start mark.
    """
    retry = _retry_of(claimed.claim)
    answers: list[Json] = []
    round_ = 0
    while True:
        name = f"tool:{claimed.id}" + (f":{round_}" if round_ else "") + (f":a{len(answers)}" if answers else "")
        task = Task(
            group="tools",
            input={"turn": turn.to_json(), "callId": claimed.id, "mode": "run", "answers": list(answers)},
        )
        running = ctx.dispatch(name, task, retry=retry)
        before, told = ([] if told is None else [told]), None
        try:
            outcome = Outcome.from_json((await settle_all([*before, running]))[-1])
        except StepFailed as failed:
            return Failed(error=str(failed))
        except InDoubt as doubt:
            round_ += 1
            resolved = await _resolve_doubt(ctx, turn, books, claimed, doubt, round_)
            if resolved is not None:
                return resolved
            continue
        if not isinstance(outcome, Questioned):
            return outcome
        answers.append(await ask.ask_for_tool(ctx, deps, turn, books, claimed.call, outcome))


def _retry_of(claimed: Claim) -> Retry:
    if claimed.kind is ToolKind.READ:
        return _AGAIN
    return _AGAIN_MARKED if claimed.idempotent else _ONCE


async def _resolve_doubt(
    ctx: Context, turn: TurnInput, books: bookkeeping.Books, claimed: Claimed, doubt: InDoubt, round_: int
) -> Outcome | None:
    """What became of an action whose process died: its outcome, or None to run it again.

    The tool's own probe answers if it has one and knows; otherwise a person does, with the facts on the card.
    """
    if claimed.claim.has_probe:
        task = Task(group="tools", input={"turn": turn.to_json(), "callId": claimed.id, "mode": "probe", "answers": []})
        try:
            probed = await ctx.dispatch(f"probe:{claimed.id}:{round_}", task, retry=_AGAIN)
        except StepFailed:
            probed = {"unknown": True}
        match probed:
            case {"happened": True, "output": output}:
                return Completed(output=output)
            case {"happened": False}:
                return None
            case _:
                pass
    await ctx.record(
        f"persist:indoubt:{claimed.id}:{round_}",
        books.doubt_writer(claimed.id, doubt, round_),
        compute=nothing,
    )
    signal = doubt_signal_name(f"tool:{ctx.run_id}:{claimed.id}", round_)
    payload = await ctx.wait_for_signal(signal)
    match payload:
        case {"verdict": "settled", "output": output}:
            return Completed(output=output)
        case _ if bookkeeping.is_approval(payload):
            await ctx.record(f"persist:again:{claimed.id}:{round_}", books.approval_writer(claimed.id), compute=nothing)
            ctx.raise_if_cancelled()
            return None
        case _:
            return Declined.from_payload(payload)


# --- delegation -----------------------------------------------------------------------------------------------


async def _delegate(ctx: Context, claimed: Claimed) -> Outcome:
    """Hand the task to a sub-agent and wait for its answer; its failure is an outcome of this call."""
    child = _child_input(claimed)
    ctx.raise_if_cancelled()
    try:
        result = await ctx.child(f"child:{claimed.id}", workflow=WORKFLOW, run_id=str(child["runId"]), input_=child)
    except ChildCancelled:
        return Failed(error="the sub-agent was cancelled before it had an answer")
    except StepFailed as failed:
        return Failed(error=f"the sub-agent failed: {failed}")
    return Completed(output=result["text"] if isinstance(result, dict) else result)


async def _detach(ctx: Context, claimed: Claimed) -> Outcome:
    """Hand the task to a sub-agent that goes on by itself; its answer arrives in the thread later."""
    child = _child_input(claimed)
    ctx.raise_if_cancelled()
    await ctx.start_child(f"detach:{claimed.id}", workflow=WORKFLOW, run_id=str(child["runId"]), input_=child)
    receipt: JsonObject = {
        "started": True,
        "runId": child["runId"],
        "agent": child["agent"],
        "note": "It works on by itself; its answer will appear in this conversation.",
    }
    return Completed(output=receipt)


def _child_input(claimed: Claimed) -> JsonObject:
    if claimed.claim.child is None:
        raise LookupError(f"the claim of {claimed.id!r} names no child run")
    return claimed.claim.child
