"""Waits and children: take what has come, or leave memory. One transaction decides which."""

from dataclasses import dataclass
from datetime import datetime

from signoff.adapters.engine.core import runs, signals, views
from signoff.adapters.engine.core.codec import NULL, failure_of, load_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution
from signoff.adapters.engine.core.journal import Entry, Hold, Kind, Mark, State
from signoff.adapters.engine.core.lifecycle import child_signal
from signoff.adapters.engine.core.runs import Ending
from signoff.domain.jsonvalue import Json, JsonObject, encode
from signoff.errors import (
    ChildCancelled,
    InvalidInput,
    NotJson,
    RunSuspended,
    SignalTimeout,
    TooLarge,
    UnknownWorkflow,
)
from signoff.ports.engine import EngineStatus, step_failed
from signoff.ports.store import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPlan:
    """A wait: `position` holds the deadline, the next one the outcome. `begun` and `outcome` are the journal's."""

    position: int
    name: str
    deadline: datetime | None
    begun: Entry | None
    outcome: Entry | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """A child: `position` says that it was started (or could not be), the next one how it ended."""

    position: int
    name: str
    workflow: str
    run_id: str
    input: JsonObject
    begun: Entry | None
    outcome: Entry | None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A child that cannot be started."""

    body: JsonObject


async def wait(execution: Execution, plan: WaitPlan) -> Json:
    """The signal's payload; see `ports.engine.Context.wait_for_signal`."""
    if plan.outcome is not None:
        return _outcome(plan.name, plan.outcome.state, plan.outcome.body)
    hold = execution.hold
    now = execution.services.clock.now()
    deadline = plan.deadline if plan.begun is None else _instant(plan.begun.body)

    def work(tx: Tx) -> tuple[State, str] | None:
        if plan.begun is None:
            text = encode(deadline.isoformat()) if deadline is not None else NULL
            _append(
                tx,
                hold,
                Mark(position=plan.position, kind=Kind.DEADLINE, name=plan.name, state=State.DONE, body=text, at=now),
            )
        else:
            hold.check(connection_of(tx))
        return _take_or_wait(tx, hold, plan.position + 1, plan.name, deadline, now)

    found = await execution.commit(f"wait {plan.name}", work)
    if found is None:
        raise _park(execution, plan.name)
    state, text = found
    return _outcome(plan.name, state, load_value(text))


async def join_child(execution: Execution, plan: ChildPlan) -> Json:
    """Start the child unless it was, and return its result; see `ports.engine.Context.child`."""
    if plan.begun is not None and plan.begun.state == State.FAILED:
        raise step_failed(plan.name, plan.begun.body)
    if plan.outcome is not None:
        return _child_outcome(plan, plan.outcome.body)
    hold = execution.hold
    now = execution.services.clock.now()
    signal = child_signal(plan.run_id)

    def work(tx: Tx) -> tuple[State, str] | _Refusal | None:
        if plan.begun is not None:
            hold.check(connection_of(tx))
            return _take_or_wait(tx, hold, plan.position + 1, signal, None, now)
        refusal = _start(tx, execution, plan, linked=True)
        _append(tx, hold, _started(plan, Kind.CHILD, refusal, now))
        return refusal or _take_or_wait(tx, hold, plan.position + 1, signal, None, now)

    found = await execution.commit(f"child {plan.name}", work)
    match found:
        case None:
            raise _park(execution, signal)
        case _Refusal(body):
            raise step_failed(plan.name, body)
        case (_, text):
            return _child_outcome(plan, load_value(text))


async def start_detached(execution: Execution, plan: ChildPlan) -> None:
    """Start a run that this one does not wait for; see `ports.engine.Context.start_child`."""
    if plan.begun is not None:
        if plan.begun.state == State.FAILED:
            raise step_failed(plan.name, plan.begun.body)
        return
    hold = execution.hold
    now = execution.services.clock.now()

    def work(tx: Tx) -> _Refusal | None:
        refusal = _start(tx, execution, plan, linked=False)
        _append(tx, hold, _started(plan, Kind.START_CHILD, refusal, now))
        return refusal

    refusal = await execution.commit(f"start_child {plan.name}", work)
    if refusal is not None:
        raise step_failed(plan.name, refusal.body)


def _take_or_wait(
    tx: Tx, hold: Hold, position: int, name: str, deadline: datetime | None, now: datetime
) -> tuple[State, str] | None:
    """Journal the signal, or that it did not come in time; otherwise say what the run waits for.

    The signal comes first: one that was there before the deadline was noticed counts.
    """
    connection = connection_of(tx)
    payload = signals.take(connection, run_id=hold.run_id, name=name, position=position)
    if payload is not None:
        found = (State.DONE, payload)
    elif deadline is not None and deadline <= now:
        found = (State.TIMEOUT, NULL)
    else:
        signals.begin_wait(connection, run_id=hold.run_id, position=position, name=name, deadline=deadline)
        return None
    state, body = found
    _append(tx, hold, Mark(position=position, kind=Kind.SIGNAL, name=name, state=state, body=body, at=now))
    signals.end_wait(connection, run_id=hold.run_id, position=position)
    return found


def _start(tx: Tx, execution: Execution, plan: ChildPlan, *, linked: bool) -> _Refusal | None:
    """Start the child, or find it started; what is wrong with it becomes the outcome of the parent's step."""
    lifecycle = execution.services.lifecycle
    try:
        started = lifecycle.start(
            tx,
            run_id=plan.run_id,
            workflow=plan.workflow,
            input_=plan.input,
            parent_id=execution.run_id,
            linked=linked,
            namespace=execution.namespace,
        )
    except (UnknownWorkflow, NotJson, TooLarge, InvalidInput) as error:
        return _Refusal(failure_of(error))
    if started or not linked:
        return None
    return _join_existing(tx, execution, plan)


def _join_existing(tx: Tx, execution: Execution, plan: ChildPlan) -> _Refusal | None:
    """The id is taken: by a child that was started detached (join it), or by somebody else's run (refuse)."""
    connection = connection_of(tx)
    child = runs.standing(connection, plan.run_id)
    if child is None or child.namespace != execution.namespace:
        return _Refusal({"type": "InvalidInput", "message": f"the run {plan.run_id!r} belongs to somebody else"})
    if child.linked and child.parent_id != execution.run_id:
        return _Refusal({"type": "InvalidInput", "message": f"the run {plan.run_id!r} is the child of another run"})
    runs.adopt(connection, plan.run_id, execution.run_id)
    if child.status.is_terminal:
        shown = views.get(connection, plan.run_id, namespace="")
        if shown is not None:
            ending = Ending(
                status=child.status,
                output=shown.output,
                error_type=shown.error_type,
                error=shown.error,
                error_code=shown.error_code,
            )
            execution.services.lifecycle.deliver(tx, execution.run_id, child, ending)
    return None


def _started(plan: ChildPlan, kind: Kind, refusal: _Refusal | None, now: datetime) -> Mark:
    state, body = (
        (State.DONE, encode({"run_id": plan.run_id})) if refusal is None else (State.FAILED, encode(refusal.body))
    )
    return Mark(position=plan.position, kind=kind, name=plan.name, state=state, body=body, at=now)


def _append(tx: Tx, hold: Hold, mark: Mark) -> None:
    hold.append(connection_of(tx), mark)


def _park(execution: Execution, name: str) -> RunSuspended:
    execution.parked = True
    return RunSuspended(f"run {execution.run_id!r} waits for {name!r}")


def _outcome(name: str, state: str, body: Json) -> Json:
    if state == State.TIMEOUT:
        raise SignalTimeout(name)
    return body


def _child_outcome(plan: ChildPlan, body: Json) -> Json:
    fields = body if isinstance(body, dict) else {}
    match fields.get("status"):
        case EngineStatus.COMPLETED.value:
            return fields.get("output")
        case EngineStatus.CANCELLED.value:
            raise ChildCancelled(plan.run_id)
        case _:
            raise step_failed(plan.name, fields.get("error"))


def _instant(body: Json) -> datetime | None:
    return None if body is None else datetime.fromisoformat(str(body))
