"""A dispatched step as its run sees it: put into the group's queue, then waited for like a signal."""

from dataclasses import replace
from datetime import datetime

from signoff.adapters.engine.core import signals
from signoff.adapters.engine.core.codec import failure_of, load_value
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution
from signoff.adapters.engine.core.journal import Entry, Hold, Kind, Mark, State
from signoff.adapters.engine.dbos import tasks
from signoff.adapters.engine.dbos.lifecycle import task_signal
from signoff.adapters.engine.dbos.queues import Queues
from signoff.adapters.engine.dbos.tasks import TaskRow, TaskState
from signoff.domain.jsonvalue import Json, JsonObject, decode, encode, normalise
from signoff.errors import NotJson, RunSuspended, TooLarge
from signoff.ports.engine import Retry, Task, in_doubt, step_failed
from signoff.ports.store import Tx


class Dispatching:
    """The `Dispatch` of this engine. The run leaves memory until a worker brings the outcome."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def __call__(
        self, execution: Execution, position: int, entry: Entry | None, name: str, task: Task, retry: Retry
    ) -> Json:
        """See `core.execution.Dispatch`."""
        if entry is not None:
            return _value(name, entry.state, entry.body)
        hold = execution.hold
        now = execution.services.clock.now()
        input_, refusal = self._checked(execution, name, task)

        def work(tx: Tx) -> Mark | str | None:
            if refusal is not None:
                mark = _mark(position, name, State.FAILED, 1, encode(refusal), now)
                hold.append(connection_of(tx), mark)
                return mark
            return self._take_or_put(tx, hold, execution.namespace, position, name, task.group, input_, retry, now)

        found = await execution.commit(f"dispatch {name}", work)
        if isinstance(found, str):
            execution.diverge(position, expected=f"{Kind.DISPATCH}:{found}", found=f"{Kind.DISPATCH}:{name}")
        if found is None:
            execution.parked = True
            raise RunSuspended(f"run {execution.run_id!r} waits for its step {name!r}")
        return _value(name, found.state, load_value(found.body))

    def _checked(self, execution: Execution, name: str, task: Task) -> tuple[Json, JsonObject | None]:
        try:
            bytes_max = execution.services.limits.entry_bytes_max
            return normalise(task.input, what=f"input of step {name!r}", bytes_max=bytes_max), None
        except (NotJson, TooLarge) as error:
            return None, failure_of(error)

    def _take_or_put(
        self,
        tx: Tx,
        hold: Hold,
        namespace: str,
        position: int,
        name: str,
        group: str,
        input_: Json,
        retry: Retry,
        now: datetime,
    ) -> Mark | str | None:
        """The outcome, journaled; or the name of another step that was put here; or None: it has to be waited for."""
        connection, run_id = connection_of(tx), hold.run_id
        hold.check(connection)
        there = tasks.get(connection, run_id, position)
        if there is not None and there.name != name:
            return there.name
        signal = task_signal(position)
        outcome = signals.take(connection, run_id=run_id, name=signal, position=position)
        if outcome is not None:
            mark = _outcome(position, name, outcome, now)
            hold.append(connection, mark)
            signals.end_wait(connection, run_id=run_id, position=position)
            return mark
        if there is None:
            tasks.insert(
                connection,
                run_id=run_id,
                position=position,
                name=name,
                group=group,
                input_=input_,
                retry=retry,
                now=now,
            )
            self._queues.put_task(tx, run_id, position, 1, group=group, namespace=namespace)
        signals.begin_wait(connection, run_id=run_id, position=position, name=signal, deadline=None)
        return None


def requeue(tx: Tx, queues: Queues, row: TaskRow, changed: TaskRow, *, namespace: str) -> None:
    """Put a step into its queue once more, as `changed`; nothing if it is not as `row` says any more."""
    queued = replace(changed, state=TaskState.QUEUED, dispatches=row.dispatches + 1, next_at=None)
    if tasks.change(connection_of(tx), row, queued):
        queues.put_task(tx, row.run_id, row.position, queued.dispatches, group=row.worker_group, namespace=namespace)


def outcome_text(state: State, attempt: int, body: str) -> str:
    """What a worker leaves for the run; `body` is JSON text."""
    return encode({"state": state.value, "attempt": attempt, "body": load_value(body)})


def _outcome(position: int, name: str, text: str, now: datetime) -> Mark:
    fields = decode(text)
    assert isinstance(fields, dict)
    attempt = fields["attempt"]
    assert isinstance(attempt, int)
    return _mark(position, name, State(str(fields["state"])), attempt, encode(fields["body"]), now)


def _mark(position: int, name: str, state: State, attempt: int, body: str, at: datetime) -> Mark:
    return Mark(position=position, kind=Kind.DISPATCH, name=name, state=state, attempt=attempt, body=body, at=at)


def _value(name: str, state: str, body: Json) -> Json:
    match state:
        case State.DONE:
            return body
        case State.DOUBT:
            raise in_doubt(name, body)
        case _:
            raise step_failed(name, body)
