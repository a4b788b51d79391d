"""Runs that have ended: driven again, or deleted."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, bindparam, delete, or_, select, update

from signoff.adapters.engine.core.leases import DRIVEN_AGAIN
from signoff.adapters.engine.core.runs import IN_NAMESPACE
from signoff.adapters.engine.core.schema import checkpoints, engine_runs, signals, waits
from signoff.adapters.engine.core.wakeups import WOKEN, Woken
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.ports.engine import EngineStatus

_ID = bindparam("run_id", type_=SafeText)

_REVIVE = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == _ID,
        or_(engine_runs.c.status == EngineStatus.FAILED, engine_runs.c.status == EngineStatus.DEAD),
    )
    .values(
        status=DRIVEN_AGAIN,
        crashes=0,
        error_type=None,
        error=None,
        error_code=None,
        ended_at=None,
        updated_at=bindparam("now", type_=Instant),
    )
    .returning(*WOKEN)
)
_ENDED_BEFORE = Statement(
    select(engine_runs.c.id)
    .where(engine_runs.c.ended_at < bindparam("before", type_=Instant), IN_NAMESPACE)
    .order_by(engine_runs.c.ended_at)
    .limit(bindparam("row_limit", type_=BigInteger))
)
_DELETE = tuple(
    Statement(delete(table).where(column == _ID))
    for table, column in (
        (checkpoints, checkpoints.c.run_id),
        (signals, signals.c.run_id),
        (waits, waits.c.run_id),
        (engine_runs, engine_runs.c.id),
    )
)


def revive(connection: Connection, run_id: str, *, now: datetime) -> Woken | None:
    """failed or dead -> pending (or cancelling, if it is to be undone), error and crash count cleared.

    None: it is neither.
    """
    row = _REVIVE.one(connection, run_id=run_id, now=now)
    return None if row is None else Woken(*row)


def ended_before(connection: Connection, before: datetime, *, namespace: str, limit: int) -> Sequence[str]:
    """Ids of runs that ended before `before`, longest ago first."""
    rows = _ENDED_BEFORE.all(connection, before=before, in_namespace=namespace, row_limit=limit)
    return [row[0] for row in rows]


def delete_run(connection: Connection, run_id: str) -> None:
    """Delete the run with its journal, signals and waits."""
    for statement in _DELETE:
        statement.run(connection, run_id=run_id)
