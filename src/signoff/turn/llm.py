"""Serves the "llm" group: one model call, streamed to whoever watches, journaled when it is whole."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import date, timedelta
from functools import partial

from signoff.agents.agent import Agent, PromptContext
from signoff.domain import frame
from signoff.domain.call import ToolKind
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import Json, JsonObject, as_object, clean_text
from signoff.domain.run import UsageEntry
from signoff.domain.thread import Thread
from signoff.errors import ConfigurationError, ModelError, ModelNoOutput, RunCancelled
from signoff.ports.clock import Timer
from signoff.ports.engine import TaskInfo
from signoff.ports.model import (
    CallDelta,
    CallStarted,
    Model,
    Prompt,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
)
from signoff.ports.store import Tx
from signoff.tools.gate import offered
from signoff.turn.access import access_of, agent_of
from signoff.turn.deps import TurnDeps
from signoff.turn.history import in_speaking_order, prompt_messages
from signoff.turn.input import TurnInput
from signoff.turn.reply import Reply, ReplyCall

THINKING = timedelta(seconds=1)


class ModelCalls:
    """The handler of the "llm" group. Finds all it needs from the task alone, on whichever worker takes it."""

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        """Call the model for one step.

        Args:
            task: ``{turn, step, fromSeq, today, closes}``; `closes` is the frame that ends the step before.

        Raises:
            ModelError: the call failed; `transient` says whether to try again.
            RunCancelled: the run was cancelled while the model was speaking; the request was dropped at once.
        """
        turn, thread, prompt, model = await self._prepare(task)
        closes = task.get("closes")
        call = _ModelCall(
            self._deps,
            turn,
            info,
            step=int(str(task["step"])),
            closes=closes if isinstance(closes, dict) else None,
        )
        # A task of its own, so that a cancel reaches the request without touching whoever awaits us.
        speaking = asyncio.ensure_future(call.run(model, prompt, thread))
        info.on_cancel(lambda: _stop(speaking))
        try:
            return (await speaking).to_json()
        except asyncio.CancelledError:
            speaking.cancel()
            if info.cancelled():
                raise RunCancelled(turn.run_id) from None
            raise

    async def _prepare(self, task: JsonObject) -> tuple[TurnInput, Thread, Prompt, Model]:
        deps = self._deps
        turn = TurnInput.from_json(as_object(task["turn"], what="a task's turn"))
        from_seq = int(str(task["fromSeq"]))

        def load(tx: Tx) -> tuple[Thread, Sequence[PromptMessage]]:
            thread = tx.thread(turn.thread_id)
            if thread is None:
                raise LookupError(f"the thread of run {turn.run_id!r} is gone")
            messages = in_speaking_order(tx.messages_of(thread.id, from_seq=from_seq), turn.run_id)
            return thread, prompt_messages(messages, tx.calls_of_thread(thread.id, from_seq=from_seq))

        thread, messages = await deps.store.read(load)
        agent = agent_of(deps, turn)
        context = PromptContext(
            actor=turn.actor,
            thread=thread,
            agent=agent.name,
            persona=agent.persona(turn.persona),
            page_context=turn.page_context,
            today=date.fromisoformat(str(task["today"])),
        )
        prompt = Prompt(
            instructions=await agent.instructions_for(context),
            messages=messages,
            tools=[tool.offered() for tool in await offered(agent.toolset, access_of(deps, agent, turn))],
            settings=agent.settings,
        )
        return turn, thread, prompt, self._model(turn, thread, agent)

    def _model(self, turn: TurnInput, thread: Thread, agent: Agent) -> Model:
        chosen = turn.model or thread.model or agent.model or self._deps.default_model
        if chosen is None:
            raise ConfigurationError(f"agent {agent.name!r} has no model: give it one, or `Signoff(model=…)`")
        return self._deps.models.model(chosen) if isinstance(chosen, str) else chosen


def _stop(speaking: "asyncio.Future[Reply]") -> None:
    speaking.cancel()


class _ModelCall:
    """One attempt: what was said so far, and its way onto the stream."""

    def __init__(self, deps: TurnDeps, turn: TurnInput, info: TaskInfo, *, step: int, closes: Frame | None) -> None:
        self._deps = deps
        self._turn = turn
        self._step = step
        self._attempt = info.attempt
        self._writer = StreamWriter(deps, turn, step=step, is_current=info.is_current, closes=closes)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, ReplyCall] = {}
        self._arguments: dict[int, list[str]] = {}

    async def run(self, model: Model, prompt: Prompt, thread: Thread) -> Reply:
        finished: ReplyFinished | None = None
        events = model.reply(prompt)
        try:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        text = clean_text(text)
                        self._text.append(text)
                        self._writer.write(frame.text(text))
                    case ReasoningDelta(text=text):
                        text = clean_text(text)
                        self._reasoning.append(text)
                        self._writer.write(frame.reasoning(text))
                    case CallStarted():
                        self._start_call(event)
                    case CallDelta(index=index, arguments=arguments):
                        self._arguments[index].append(clean_text(arguments))
                        self._writer.write(
                            frame.tool_input_delta(call_id=self._calls[index].id, delta=clean_text(arguments))
                        )
                    case ReplyFinished():
                        finished = event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()  # drops the request at once when we were cut short
            self._writer.flush()
        if finished is None:
            raise ModelError("the model's reply ended before it was finished", transient=True)
        self._keep_usage(finished, thread)
        reply = self._reply(finished)
        if not reply.text.strip() and not reply.calls:
            raise ModelNoOutput("the model answered with nothing")
        if len(reply.calls) > self._deps.settings.calls_per_step_max:
            raise ModelError(f"the model asked for {len(reply.calls)} calls in one step")
        return reply

    def _start_call(self, event: CallStarted) -> None:
        call = ReplyCall(
            id=self._deps.ids.new("call"),
            provider_id=clean_text(event.provider_id),
            name=clean_text(event.name),
            arguments="",
        )
        self._calls[event.index] = call
        self._arguments[event.index] = []
        self._writer.write(
            frame.tool_input_start(
                call_id=call.id,
                name=call.name,
                kind=self._kind_of(call.name),
                parent_id=self._turn.parent_call_id,
            )
        )

    def _kind_of(self, name: str) -> ToolKind:
        agent = self._deps.agents.get(self._turn.agent)
        tool = None if agent is None else agent.toolset.get(name)
        return ToolKind.READ if tool is None else tool.kind

    def _reply(self, finished: ReplyFinished) -> Reply:
        calls = tuple(
            ReplyCall(
                id=call.id,
                provider_id=call.provider_id,
                name=call.name,
                arguments="".join(self._arguments[index]),
            )
            for index, call in sorted(self._calls.items())
        )
        return Reply(
            text="".join(self._text),
            reasoning="".join(self._reasoning),
            calls=calls,
            usage=finished.usage,
            model=finished.model,
            cost_usd=None if finished.cost_usd is None else str(finished.cost_usd),
        )

    def _keep_usage(self, finished: ReplyFinished, thread: Thread) -> None:
        """The ledger's row: written with the call itself, so that it counts whatever becomes of the run."""
        turn = self._turn
        now = self._deps.clock.now()
        entry = UsageEntry(
            id=f"{turn.run_id}:{self._step}:{self._attempt}",
            run_id=turn.run_id,
            thread_id=thread.id,
            actor_id=turn.actor.id,
            tenant=turn.actor.tenant,
            agent=turn.agent,
            model=finished.model,
            step=self._step,
            attempt=self._attempt,
            usage=finished.usage,
            cost_usd=finished.cost_usd,
            at=now,
            day=now.date().isoformat(),
        )
        self._deps.store.transact_soon(f"usage:{self._step}", lambda tx: tx.add_usage(entry))


class StreamWriter:
    """Streamed frames on their way into the store: the first at once, the rest in pieces, always in order.

    The first piece opens the step on the stream: it ends the one before (`closes`), and withdraws what an attempt
    that was lost had shown. Adjacent deltas of one piece become one frame. A sub-agent's text stays off the stream
    it is watched on, and so does that of an attempt that is not current (`TaskInfo`).
    """

    def __init__(
        self, deps: TurnDeps, turn: TurnInput, *, step: int, is_current: Callable[[Tx], bool], closes: Frame | None
    ) -> None:
        self._deps = deps
        self._turn = turn
        self._step = step
        self._is_current = is_current
        self._closes = closes
        self._begun = False
        self._first: int | None = None
        self._spoken = False
        self._frames: list[Frame] = []
        self._timer: Timer | None = None
        self._next_flush = deps.clock.now() + deps.settings.text_flush
        if not turn.is_nested:
            # A model that takes its time to begin is shown as thinking. One that refuses at once has shown nothing
            # that a retry would have to withdraw.
            self._timer = deps.clock.call_at(deps.clock.now() + THINKING, self._show)

    def write(self, piece: Frame) -> None:
        """Take one frame."""
        if self._turn.is_nested:
            return
        last = self._frames[-1] if self._frames else None
        if last is None or not _merge(last, piece):
            self._frames.append(dict(piece))
        if not self._spoken:
            self._spoken = True
            self.flush()
        elif self._timer is None:  # else it flushes, and no delta has to ask for the time
            self._timer = self._deps.clock.call_at(self._next_flush, self.flush)

    def flush(self) -> None:
        """Hand over what there is, if anything."""
        if self._frames:
            self._show()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _show(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._next_flush = self._deps.clock.now() + self._deps.settings.text_flush
        frames, self._frames = self._frames, []
        if frames or not self._begun:
            label = "text" if self._begun else "begin"
            self._begun = True
            self._deps.store.transact_soon(f"{label}:{self._step}", partial(self._put, frames=frames))

    def _put(self, tx: Tx, frames: list[Frame]) -> None:
        turn = self._turn
        # Locked: of two attempts that begin at once, one sees the other.
        run = tx.run(turn.run_id, lock=True)
        if run is None or run.status.is_terminal or not self._is_current(tx):
            return  # somebody else drives this run by now, or it has ended: what we hear is nobody's
        if run.attempt_seq is not None and run.attempt_seq == self._first:
            tx.emit(turn.stream_id, frames)
            return
        opening = [frame.step_start()]
        if run.attempt_seq is not None:
            tx.withdraw(turn.stream_id, from_seq=run.attempt_seq)
        elif self._closes is not None:
            opening.insert(0, self._closes)
        last = tx.emit(turn.stream_id, [*opening, *frames])
        self._first = last - len(frames)
        tx.change_run(turn.run_id, attempt_seq=self._first)


def _merge(last: Frame, piece: Frame) -> bool:
    """Append `piece` to `last` if both are deltas of the same thing."""
    if last["kind"] != piece["kind"]:
        return False
    match piece:
        case {"kind": "text" | "reasoning", "text": str(text)}:
            last["text"] = str(last["text"]) + text
            return True
        case {"kind": "tool-input-delta", "id": call_id, "delta": str(delta)} if last["id"] == call_id:
            last["delta"] = str(last["delta"]) + delta
            return True
        case _:
            return False
