"""Parked runs that can go on, and the pending ones that wait for a worker."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, func, select, update

from signoff.adapters.engine.core.runs import IN_NAMESPACE
from signoff.adapters.engine.core.schema import engine_runs, signals, waits
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.ports.engine import EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)


@dataclass(frozen=True, slots=True)
class Woken:
    """A run that can go on."""

    id: str
    workflow: str


def waited_for() -> ColumnElement[bool]:
    """A signal that the run waits for has come and was not taken."""
    return (
        select(waits.c.position)
        .join(signals, and_(signals.c.run_id == waits.c.run_id, signals.c.name == waits.c.name))
        .where(waits.c.run_id == engine_runs.c.id, signals.c.position.is_(None))
        .correlate(engine_runs)
        .exists()
    )


_TO_PENDING = {"status": EngineStatus.PENDING, "wake_at": None, "updated_at": _NOW}
WOKEN = (engine_runs.c.id, engine_runs.c.workflow)

_WAKE = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == _ID,
        engine_runs.c.status == EngineStatus.SUSPENDED,
        select(waits.c.position)
        .where(waits.c.run_id == engine_runs.c.id, waits.c.name == bindparam("signal_name", type_=SafeText))
        .correlate(engine_runs)
        .exists(),
    )
    .values(_TO_PENDING)
    .returning(*WOKEN)
)


def wake(connection: Connection, run_id: str, signal: str, *, now: datetime) -> Woken | None:
    """suspended -> pending, if the run waits for `signal`."""
    row = _WAKE.one(connection, run_id=run_id, signal_name=signal, now=now)
    return None if row is None else Woken(*row)


# By id, so that SQLite starts from the index on deadlines and not from all the parked runs.
_due = engine_runs.alias("due")
_WAKE_DUE = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id.in_(select(_due.c.id).where(_due.c.wake_at <= _NOW)),
        engine_runs.c.status == EngineStatus.SUSPENDED,
        IN_NAMESPACE,
    )
    .values(_TO_PENDING)
    .returning(*WOKEN)
)
_NEXT_DUE = Statement(select(func.min(engine_runs.c.wake_at)).where(engine_runs.c.wake_at.is_not(None)))

_untaken = select(signals.c.run_id).where(signals.c.position.is_(None))
_WAKE_LOST = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id.in_(_untaken),
        engine_runs.c.status == EngineStatus.SUSPENDED,
        waited_for(),
        IN_NAMESPACE,
    )
    .values(_TO_PENDING)
    .returning(*WOKEN)
)


def wake_due(connection: Connection, *, now: datetime, namespace: str) -> list[Woken]:
    """Wake the runs whose deadline has come."""
    return [Woken(*row) for row in _WAKE_DUE.all(connection, now=now, in_namespace=namespace)]


def next_due(connection: Connection) -> datetime | None:
    """The earliest deadline of all parked runs."""
    row = _NEXT_DUE.one(connection)
    return None if row is None else row[0]


def wake_lost(connection: Connection, *, now: datetime, namespace: str) -> list[Woken]:
    """Wake parked runs whose signal is there: a wake that got lost. Starts from the signals nobody took."""
    return [Woken(*row) for row in _WAKE_LOST.all(connection, now=now, in_namespace=namespace)]


_PENDING = Statement(
    select(*WOKEN)
    .where(engine_runs.c.status == EngineStatus.PENDING, engine_runs.c.id > bindparam("after_id", type_=SafeText))
    .where(IN_NAMESPACE)
    .order_by(engine_runs.c.id)
    .limit(bindparam("row_limit", type_=BigInteger))
)


def pending(connection: Connection, *, namespace: str, after_id: str, limit: int) -> list[Woken]:
    """Runs that wait for a worker, by id."""
    return [Woken(*row) for row in _PENDING.all(connection, in_namespace=namespace, after_id=after_id, row_limit=limit)]
