"""Runs as DBOS hands them to a worker: the run's row says what is to be done with them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import BigInteger, Connection, Text, and_, bindparam, case, not_, or_, select, type_coerce, update

from signoff.adapters.engine.core.leases import Claimed
from signoff.adapters.engine.core.runs import IN_NAMESPACE
from signoff.adapters.engine.core.schema import engine_runs, waits
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.ports.engine import EngineStatus

#: The first part of the name under which a step's outcome comes to its run.
TASK_SIGNAL = "task:"

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)
_RUNNING = engine_runs.c.status == EngineStatus.RUNNING

# DBOS gives a workflow to one executor at a time, and to another one only after the first is given up. So a row that
# is still `running` belonged to a worker that died, or is taken for dead: the next fence shuts it out.
_CLAIM = Statement(
    update(engine_runs)
    .where(engine_runs.c.id == _ID, or_(engine_runs.c.status == EngineStatus.PENDING, _RUNNING))
    .values(
        status=EngineStatus.RUNNING,
        fence=engine_runs.c.fence + 1,
        crashes=engine_runs.c.crashes + case((_RUNNING, 1), else_=0),
        owner=bindparam("new_owner", type_=SafeText),
        wake_at=None,
        updated_at=_NOW,
    )
    .returning(
        engine_runs.c.fence,
        engine_runs.c.workflow,
        engine_runs.c.namespace,
        type_coerce(engine_runs.c.input, Text),
        engine_runs.c.crashes,
    )
)
_CRASHED = Statement(
    update(engine_runs)
    .where(engine_runs.c.id == _ID)
    .values(crashes=engine_runs.c.crashes + 1)
    .returning(engine_runs.c.crashes)
)
_OWNER = Statement(select(engine_runs.c.owner).where(engine_runs.c.id == _ID))
_WAITS = Statement(select(waits.c.name).where(waits.c.run_id == _ID))
_STALE = Statement(
    select(engine_runs.c.id, engine_runs.c.status, engine_runs.c.namespace, engine_runs.c.owner)
    .where(
        or_(
            engine_runs.c.status == EngineStatus.PENDING,
            _RUNNING,
            engine_runs.c.status == EngineStatus.CANCELLING,
        ),
        engine_runs.c.updated_at < bindparam("before", type_=Instant),
    )
    .order_by(engine_runs.c.id)
)
_PENDING = Statement(
    select(engine_runs.c.namespace).where(engine_runs.c.id == _ID, engine_runs.c.status == EngineStatus.PENDING)
)

_own_waits = select(waits.c.position).where(waits.c.run_id == engine_runs.c.id).correlate(engine_runs)
_HAS_STEPS = and_(
    engine_runs.c.status == EngineStatus.SUSPENDED,
    _own_waits.where(waits.c.name.like(f"{TASK_SIGNAL}%")).exists(),
)
_PAGE = (
    select(engine_runs.c.id)
    .where(IN_NAMESPACE, engine_runs.c.id > bindparam("after_id", type_=SafeText))
    .order_by(engine_runs.c.id)
    .limit(bindparam("row_limit", type_=BigInteger))
)
_RUNNING_PAGE = Statement(_PAGE.where(or_(_RUNNING, _HAS_STEPS)))
_SUSPENDED_PAGE = Statement(_PAGE.where(engine_runs.c.status == EngineStatus.SUSPENDED, not_(_HAS_STEPS)))


@dataclass(frozen=True, slots=True)
class Stale:
    """A run that should be driven, and that nothing was heard of for a while."""

    id: str
    status: EngineStatus
    namespace: str
    owner: str | None


def claim(connection: Connection, run_id: str, *, owner: str, now: datetime) -> tuple[Claimed, int] | None:
    """pending, or running under a dead worker, -> running under the next fence.

    Returns the claim and how many workers have died of the run in a row; None: it is parked or has ended.
    """
    row = _CLAIM.one(connection, run_id=run_id, new_owner=owner, now=now)
    return None if row is None else (Claimed(*row[:4]), int(row[4]))


def count_crash(connection: Connection, run_id: str) -> int:
    """One more worker has died of the run; returns how many in a row."""
    row = _CRASHED.one(connection, run_id=run_id)
    return 0 if row is None else int(row[0])


def is_owned(connection: Connection, run_id: str) -> bool:
    """Whether a worker drives the run's body."""
    row = _OWNER.one(connection, run_id=run_id)
    return row is not None and row[0] is not None


def waited_for(connection: Connection, run_id: str) -> list[str]:
    """Names of the signals that the run waits for."""
    return [row[0] for row in _WAITS.all(connection, run_id=run_id)]


def pending_in(connection: Connection, run_id: str) -> str | None:
    """The namespace of the run if it is pending, else None."""
    row = _PENDING.one(connection, run_id=run_id)
    return None if row is None else str(row[0])


def stale(connection: Connection, *, before: datetime) -> list[Stale]:
    """Runs that should be driven and whose row has not changed since `before`."""
    return [Stale(*row) for row in _STALE.all(connection, before=before)]


def page(
    connection: Connection,
    status: Literal[EngineStatus.RUNNING, EngineStatus.SUSPENDED],
    *,
    namespace: str,
    limit: int,
    after_id: str,
) -> list[str]:
    """Ids of runs that are running (or of which a step is), or of those that are suspended and do nothing at all."""
    statement = _RUNNING_PAGE if status is EngineStatus.RUNNING else _SUSPENDED_PAGE
    return [row[0] for row in statement.all(connection, in_namespace=namespace, row_limit=limit, after_id=after_id)]
