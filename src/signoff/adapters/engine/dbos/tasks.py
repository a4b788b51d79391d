"""Rows of `engine_tasks`: dispatched steps on their way. Every change says from which state and attempt it starts."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import BigInteger, Connection, Integer, Text, bindparam, delete, func, or_, select, update

from signoff.adapters.engine.core.schema import engine_runs
from signoff.adapters.engine.dbos.schema import engine_tasks
from signoff.adapters.stores.sql.statement import RowValues, Statement, parameters
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import EngineStatus, Retry


class TaskState(StrEnum):
    """Where a step is: in its group's queue, with a worker, waiting for its next attempt, or done with."""

    QUEUED = "queued"
    STARTED = "started"
    RETRYING = "retrying"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A dispatched step. See `schema.engine_tasks`."""

    run_id: str
    position: int
    name: str
    worker_group: str
    input: JsonObject
    retry: JsonObject
    state: TaskState
    attempt: int
    spared: int
    dispatches: int
    failure: str | None
    started_at: datetime | None
    next_at: datetime | None
    created_at: datetime

    @property
    def policy(self) -> Retry:
        """The retry policy that the step was dispatched with."""
        return retry_of(self.retry)


def retry_json(retry: Retry) -> JsonObject:
    """A policy as the row keeps it; durations in seconds."""
    return {
        "attempts": retry.attempts,
        "backoff_s": retry.backoff.total_seconds(),
        "factor": retry.factor,
        "backoff_max_s": retry.backoff_max.total_seconds(),
        "repeatable": retry.repeatable,
    }


def retry_of(stored: JsonObject) -> Retry:
    """The inverse of `retry_json`."""
    return Retry(
        attempts=int(_number(stored["attempts"])),
        backoff=timedelta(seconds=_number(stored["backoff_s"])),
        factor=_number(stored["factor"]),
        backoff_max=timedelta(seconds=_number(stored["backoff_max_s"])),
        repeatable=stored["repeatable"] is True,
    )


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")  # a broken row, not a broken caller
    return value


_RUN = bindparam("of_run", type_=SafeText)
_POSITION = bindparam("at_position", type_=BigInteger)
_HERE = (engine_tasks.c.run_id == _RUN, engine_tasks.c.position == _POSITION)
_COLUMNS = [column.name for column in engine_tasks.columns]

_INSERT = Statement(lambda insert: insert(engine_tasks).values(parameters(engine_tasks, _COLUMNS)))
_GET = Statement(select(*engine_tasks.columns).where(*_HERE).with_for_update())
_ALL = Statement(select(*engine_tasks.columns).where(engine_tasks.c.run_id == _RUN).order_by(engine_tasks.c.position))
_STARTED = Statement(
    select(engine_tasks.c.position).where(
        engine_tasks.c.run_id == _RUN, engine_tasks.c.state == TaskState.STARTED.value
    )
)
_ATTEMPT = Statement(select(engine_tasks.c.state, engine_tasks.c.attempt).where(*_HERE))
_DELETE_ALL = Statement(delete(engine_tasks).where(engine_tasks.c.run_id == _RUN))


def insert(
    connection: Connection,
    *,
    run_id: str,
    position: int,
    name: str,
    group: str,
    input_: Json,
    retry: Retry,
    now: datetime,
) -> None:
    """A step that was enqueued once."""
    values: dict[str, object] = dict.fromkeys(_COLUMNS)
    values |= {"run_id": run_id, "position": position, "name": name, "worker_group": group, "input": input_}
    values |= {"retry": retry_json(retry), "state": TaskState.QUEUED.value, "attempt": 0, "spared": 0, "dispatches": 1}
    values["created_at"] = now
    _INSERT.run(connection, **values)


def get(connection: Connection, run_id: str, position: int) -> TaskRow | None:
    """The step at this position; locked."""
    row = _GET.one(connection, of_run=run_id, at_position=position)
    return None if row is None else _row(row)


def of_run(connection: Connection, run_id: str) -> list[TaskRow]:
    """The run's dispatched steps, by position."""
    return [_row(row) for row in _ALL.all(connection, of_run=run_id)]


def any_started(connection: Connection, run_id: str) -> bool:
    """Whether a worker executes a step of the run."""
    return _STARTED.one(connection, of_run=run_id) is not None


def is_started(connection: Connection, row: TaskRow) -> bool:
    """Whether the step still is at this attempt."""
    there = _ATTEMPT.one(connection, of_run=row.run_id, at_position=row.position)
    return there is not None and tuple(there) == (TaskState.STARTED, row.attempt)


def delete_run(connection: Connection, run_id: str) -> None:
    """Delete all steps of a run."""
    _DELETE_ALL.run(connection, of_run=run_id)


_CHANGE = Statement(
    update(engine_tasks)
    .where(
        *_HERE,
        engine_tasks.c.state == bindparam("from_state", type_=SafeText),
        engine_tasks.c.attempt == bindparam("from_attempt", type_=Integer),
    )
    .values(
        state=bindparam("new_state", type_=SafeText),
        attempt=bindparam("new_attempt", type_=Integer),
        spared=bindparam("new_spared", type_=Integer),
        dispatches=bindparam("new_dispatches", type_=Integer),
        failure=bindparam("new_failure", type_=Text),
        started_at=bindparam("new_started_at", type_=Instant),
        next_at=bindparam("new_next_at", type_=Instant),
    )
)


def change(connection: Connection, old: TaskRow, new: TaskRow) -> bool:
    """Replace `old` by `new`. False: the step is not in the state and attempt of `old` any more."""
    changed = _CHANGE.run(
        connection,
        of_run=old.run_id,
        at_position=old.position,
        from_state=old.state.value,
        from_attempt=old.attempt,
        new_state=new.state.value,
        new_attempt=new.attempt,
        new_spared=new.spared,
        new_dispatches=new.dispatches,
        new_failure=new.failure,
        new_started_at=new.started_at,
        new_next_at=new.next_at,
    )
    return changed == 1


_DUE = Statement(
    select(*engine_tasks.columns)
    .where(engine_tasks.c.next_at <= bindparam("now", type_=Instant))
    .with_for_update(skip_locked=True)
)
_NEXT_DUE = Statement(select(func.min(engine_tasks.c.next_at)).where(engine_tasks.c.next_at.is_not(None)))
_CANCELLED = Statement(
    select(engine_tasks.c.run_id)
    .join(engine_runs, engine_runs.c.id == engine_tasks.c.run_id)
    .where(
        engine_tasks.c.state == TaskState.STARTED.value,
        or_(engine_runs.c.status == EngineStatus.CANCELLING, engine_runs.c.status == EngineStatus.CANCELLED),
    )
    .distinct()
)


def due(connection: Connection, now: datetime) -> list[TaskRow]:
    """Steps whose next attempt is due; locked, without those that another worker holds."""
    return [_row(row) for row in _DUE.all(connection, now=now)]


def next_due(connection: Connection) -> datetime | None:
    """When the next attempt of all is due."""
    row = _NEXT_DUE.one(connection)
    return None if row is None else row[0]


def cancelled_runs(connection: Connection) -> list[str]:
    """Runs that were cancelled while a worker executes a step of theirs."""
    return [row[0] for row in _CANCELLED.all(connection)]


def _row(values: RowValues) -> TaskRow:
    named = dict(zip(_COLUMNS, values, strict=True))
    return TaskRow(**{**named, "state": TaskState(named["state"])})
