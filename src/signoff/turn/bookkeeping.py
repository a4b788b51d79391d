"""What the loop writes down: one method per checkpoint, each a function of a transaction."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import assert_never

from signoff.agents.agent import Agent
from signoff.domain import frame
from signoff.domain.approval import RungAction
from signoff.domain.audit import AuditKind
from signoff.domain.call import Call, CallStatus
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.run import Run
from signoff.domain.thread import Message, Role
from signoff.elicitation.intake import IntakeWhen
from signoff.errors import InDoubt, QuotaExceeded
from signoff.models.usage import to_wire
from signoff.ports.events import EventName
from signoff.ports.store import ThreadChanges, Tx
from signoff.turn import card, settle
from signoff.turn.access import agent_of
from signoff.turn.claim import RungPlan
from signoff.turn.delivery import preview
from signoff.turn.deps import TurnDeps
from signoff.turn.history import Candidate, candidates, window_start
from signoff.turn.input import TurnInput
from signoff.turn.outbox import tell_escalated
from signoff.turn.outcome import Outcome
from signoff.turn.record_outcome import record_outcome
from signoff.turn.reply import Reply

Write = Callable[[Tx, None], Json]

TITLE_LENGTH = 80
HISTORY_TOKENS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What `persist:run:start` fixed for the whole run: the UTC day, the agent's limits, the questions due."""

    day: str
    max_steps: int
    history_messages: int
    history_tokens: int
    intake: JsonObject | None = None

    @classmethod
    def from_json(cls, value: Json) -> "Facts":
        """From the checkpoint."""
        facts = as_object(value, what="the run's facts")
        intake = facts.get("intake")
        return cls(
            day=str(facts["day"]),
            max_steps=int(str(facts["maxSteps"])),
            history_messages=int(str(facts["historyMessages"])),
            history_tokens=int(str(facts["historyTokens"])),
            intake=None if intake is None else as_object(intake, what="an intake"),
        )


def raise_if_spent(checked: Json) -> None:
    """Raises `QuotaExceeded` if `quota:check` found the actor's quota spent."""
    match checked:
        case {"spent": str(period)}:
            raise QuotaExceeded(period=period)
        case _:
            return


def is_approval(payload: Json) -> bool:
    """Only the explicit word approves."""
    return isinstance(payload, dict) and payload.get("verdict") == "approved"


def select_window(listed: Json, facts: Facts) -> int:
    """From which `seq` on the model is shown the thread."""
    items = listed if isinstance(listed, list) else []
    return window_start(
        [_candidate(item) for item in items],
        messages_max=facts.history_messages,
        tokens_max=facts.history_tokens,
    )


def _candidate(value: Json) -> Candidate:
    item = as_object(value, what="a history entry")
    return Candidate(seq=int(str(item["seq"])), role=Role(str(item["role"])), tokens=int(str(item["tokens"])))


class Books:
    """The writes of one run."""

    def __init__(self, deps: TurnDeps, turn: TurnInput) -> None:
        self._deps = deps
        self._turn = turn

    # --- the turn's beginning -------------------------------------------------------------------------------

    def start_run(self, tx: Tx, _: None) -> Json:
        """`persist:run:start`: the facts that must stay the same however often the run is replayed."""
        deps, turn = self._deps, self._turn
        agent = agent_of(deps, turn)
        deps.events.emit_on_commit(
            tx,
            EventName.RUN_STARTED,
            run_id=turn.run_id,
            thread_id=turn.thread_id,
            agent=turn.agent,
            parent_id=turn.parent_id,
        )
        return {
            "day": deps.clock.now().date().isoformat(),
            "maxSteps": agent.max_steps,
            "historyMessages": agent.history_messages,
            "historyTokens": agent.history_tokens or HISTORY_TOKENS,
            "intake": self._intake(tx, agent),
        }

    def _intake(self, tx: Tx, agent: Agent) -> Json:
        """The agent's question set, if it has one that is due in this turn."""
        if agent.intake is None or self._turn.parent_id is not None:
            return None
        is_first_turn = len(tx.messages_of(self._turn.thread_id, last=2)) < 2
        if agent.intake.when is IntakeWhen.THREAD_START and not is_first_turn:
            return None
        return agent.intake.question_set().as_json()

    def check_quota(self, tx: Tx, _: None) -> Json:
        """`quota:check`: the ledger as it is now."""
        deps, turn = self._deps, self._turn
        if deps.quota is None:
            return {}
        for window in deps.quota.windows(tx, turn.actor, deps.clock.now()):
            if window.is_spent:
                deps.events.emit_on_commit(
                    tx,
                    EventName.QUOTA_EXCEEDED,
                    run_id=turn.run_id,
                    thread_id=turn.thread_id,
                    period=window.period,
                )
                return {"spent": window.period}
        return {}

    def keep_user_message(self, tx: Tx, _: None) -> Json:
        """`persist:user`: the message was stored when the turn was admitted; from here on the journal knows it."""
        turn, events = self._turn, self._deps.events
        events.emit_on_commit(tx, EventName.MESSAGE, run_id=turn.run_id, thread_id=turn.thread_id, role=Role.USER.value)
        return None

    def keep_title(self, tx: Tx, _: None) -> Json:
        """`persist:title`: a thread without a title gets one from its first message."""
        turn = self._turn
        thread = tx.thread(turn.thread_id)
        if thread is None or thread.title or turn.is_nested:
            return None
        first = next((m for m in tx.messages_of(turn.thread_id) if m.role is Role.USER), None)
        title = " ".join(first.content.split())[:TITLE_LENGTH] if first else ""
        if title:
            tx.change_thread(turn.thread_id, title=title)
            tx.emit(turn.stream_id, [frame.title(title)])
        return title or None

    def list_history(self, tx: Tx, _: None) -> Json:
        """`history:window`: the messages that may be shown, measured."""
        return [candidate.to_json() for candidate in self._measure(tx)]

    def select_history(self, tx: Tx, _: None) -> Json:
        """`history:window` in its older shape: the selection is made inside."""
        agent = agent_of(self._deps, self._turn)
        return window_start(
            self._measure(tx),
            messages_max=agent.history_messages,
            tokens_max=agent.history_tokens or HISTORY_TOKENS,
        )

    def _measure(self, tx: Tx) -> list[Candidate]:
        agent = agent_of(self._deps, self._turn)
        messages = tx.messages_of(self._turn.thread_id, last=agent.history_messages)
        from_seq = messages[0].seq if messages else 0
        return candidates(messages, tx.calls_of_thread(self._turn.thread_id, from_seq=from_seq))

    # --- steps ----------------------------------------------------------------------------------------------

    def step_writer(self, step: int, reply: Reply) -> Write:
        """`persist:step:<i>`: the assistant's message, with usage and totals; returns the message's id."""
        deps, turn = self._deps, self._turn

        def write(tx: Tx, _: None) -> Json:
            now = deps.clock.now()
            message = Message(
                id=deps.ids.new("msg"),
                thread_id=turn.thread_id,
                role=Role.ASSISTANT,
                content=reply.text,
                run_id=turn.run_id,
                step=step,
                agent_name=turn.agent,
                reasoning=reply.reasoning or None,
                usage=_stored_usage(reply),
                created_at=now,
            )
            tx.insert_message(message, **_touch(reply.text, now))
            tx.add_to_run(
                turn.run_id,
                steps=1,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                cost_usd=_decimal(reply.cost_usd) or Decimal(0),
            )
            if not reply.calls:
                self._close_step(tx, reply)
            deps.events.emit_on_commit(
                tx,
                EventName.MESSAGE,
                run_id=turn.run_id,
                thread_id=turn.thread_id,
                role=Role.ASSISTANT.value,
                step=step,
                calls=len(reply.calls),
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
            )
            return message.id

        return write

    def limit_writer(self, last: Reply | None) -> Write:
        """`persist:limit`: the turn used all its steps; the person is told in a message of its own."""
        deps, turn = self._deps, self._turn
        text = "I stopped here: this turn has used all the steps it is allowed."

        def write(tx: Tx, _: None) -> Json:
            now = deps.clock.now()
            tx.insert_message(
                Message(
                    id=deps.ids.new("msg"),
                    thread_id=turn.thread_id,
                    role=Role.ASSISTANT,
                    content=text,
                    run_id=turn.run_id,
                    agent_name=turn.agent,
                    created_at=now,
                ),
                **_touch(text, now),
            )
            if last is not None:
                self._close_step(tx, last)
            if not turn.is_nested:
                spoken = [frame.step_start(), frame.text(text)]
                tx.emit(turn.stream_id, [*spoken, frame.step_finish(usage=None, cost_usd=None, model=None)])
            return text

        return write

    def end_run(self, tx: Tx, _: None) -> Json:
        """`persist:run:end`: run row, thread and stream are closed together."""
        run = self._run(tx)
        settle.complete(tx, run, deps=self._deps, frames=[])
        return None

    def _close_step(self, tx: Tx, reply: Reply) -> None:
        if not self._turn.is_nested:
            tx.emit(self._turn.stream_id, [reply.step_finish()])

    def _run(self, tx: Tx) -> Run:
        run = tx.run(self._turn.run_id)
        if run is None:
            raise LookupError(f"the row of run {self._turn.run_id!r} is gone")
        return run

    # --- cards and outcomes ---------------------------------------------------------------------------------

    def approval_writer(self, call_id: str) -> Write:
        """The decision has reached the run: the stream hears of it."""

        def write(tx: Tx, _: None) -> Json:
            call = self._call(tx, call_id)
            tx.emit(self._turn.stream_id, [card.approval_settled(call, status="approved", remember=call.remember)])
            return None

        return write

    def expire_writer(self, call_id: str) -> Write:
        """`persist:expire:<callId>`: close the card, unless somebody decided it in time. True: it has expired."""

        def write(tx: Tx, _: None) -> Json:
            tx.change_call(call_id, expect=frozenset({CallStatus.PENDING}), status=CallStatus.EXPIRED)
            return self._call(tx, call_id).status is CallStatus.EXPIRED

        return write

    def rung_writer(self, call_id: str, number: int, rung: RungPlan) -> Write:
        """`persist:rung:<n>:<callId>`: remind, or let another role decide as well."""
        deps = self._deps

        def write(tx: Tx, _: None) -> Json:
            call = self._call(tx, call_id)
            now = deps.clock.now()
            if not call.is_open:
                return None
            match rung.action:
                case RungAction.REMIND:
                    kind, told = AuditKind.REMINDED, "reminded"
                case RungAction.WIDEN:
                    kind, told = AuditKind.WIDENED, "widened"
                    widened = (*call.widened, *([rung.role] if rung.role else []))
                    tx.change_call(call_id, expect=frozenset({CallStatus.PENDING}), widened=widened)
                case _:
                    assert_never(rung.action)
            tx.append_audit(
                tenant=call.tenant,
                at=now,
                kind=kind,
                run_id=call.run_id,
                call_id=call_id,
                actor_id=None,
                data=frame.without_none(rung=number, role=rung.role),
            )
            if deps.notifies:
                tell_escalated(tx, call, kind=told, rung=number, role=rung.role, now=now)
            deps.events.emit_on_commit(
                tx,
                EventName.APPROVAL_ESCALATED,
                run_id=call.run_id,
                thread_id=call.thread_id,
                call_id=call.id,
                tool=call.name,
                action=told,
            )
            return None

        return write

    def doubt_writer(self, call_id: str, doubt: InDoubt, round_: int) -> Write:
        """`persist:indoubt:<callId>:<n>`: nobody knows whether the action happened; a person is asked."""
        deps = self._deps

        def write(tx: Tx, _: None) -> Json:
            facts: JsonObject = {"startedAt": doubt.started_at, "attempt": doubt.attempt, "round": round_}
            tx.change_call(
                call_id,
                expect=frozenset({CallStatus.APPROVED, CallStatus.RUNNING}),
                status=CallStatus.IN_DOUBT,
                in_doubt=facts,
                expires_at=None,
            )
            call = self._call(tx, call_id)
            tx.emit(self._turn.stream_id, [card.approval_requested(call)])
            card.put_to_person(tx, call, deps=deps, now=deps.clock.now(), requirement=None)
            return None

        return write

    def outcome_writer(self, call_id: str, outcome: Outcome) -> Write:
        """`persist:toolexec|toolreject|toolfail:<callId>`: one outcome, see `record_outcome`."""

        def write(tx: Tx, _: None) -> Json:
            record_outcome(tx, self._call(tx, call_id), outcome, stream_id=self._turn.stream_id, deps=self._deps)
            return None

        return write

    def _call(self, tx: Tx, call_id: str) -> Call:
        call = tx.call(call_id)
        if call is None:
            raise LookupError(f"the row of call {call_id!r} is gone")
        return call


def _stored_usage(reply: Reply) -> JsonObject:
    usage = to_wire(reply.usage)
    if reply.cost_usd is not None:
        usage["costUsd"] = float(reply.cost_usd)
    return usage


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def _touch(text: str, now: datetime) -> ThreadChanges:
    """What a message changes in its thread; one without text leaves the preview of the one before."""
    return {"updated_at": now, "last_message_preview": preview(text)} if text else {"updated_at": now}
