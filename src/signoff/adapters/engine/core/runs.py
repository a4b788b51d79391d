"""Rows of `engine_runs`: begun, read before they are changed, cancelled, ended.

Every change of a status is one conditional statement, so the first terminal one wins. Beside it: `leases` (who drives
a run), `wakeups` (parked ones that can go on), `views` (what people see), `ended`.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ColumnElement, Connection, bindparam, delete, or_, select, update

from signoff.adapters.engine.core.journal import Hold, kept
from signoff.adapters.engine.core.schema import engine_runs, waits
from signoff.adapters.stores.sql.statement import Statement, parameters
from signoff.adapters.stores.sql.types import Instant, SafeText, Word
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)
_FENCE = bindparam("expected_fence", type_=BigInteger)
_FROM = bindparam("from_status", type_=Word(EngineStatus))
_NAMESPACE = bindparam("in_namespace", type_=SafeText)

#: A worker of the namespace "" drives and sees all of them.
IN_NAMESPACE: ColumnElement[bool] = or_(_NAMESPACE == "", engine_runs.c.namespace == _NAMESPACE)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands, read (and locked, where there are row locks) before it is changed."""

    id: str
    workflow: str
    status: EngineStatus
    namespace: str
    parent_id: str | None
    linked: bool
    fence: int
    crashes: int
    lease_until: datetime | None
    compensate: bool

    @property
    def is_undone(self) -> bool:
        """Whether it is being undone, or waits for a worker that does it."""
        return self.compensate and self.status is EngineStatus.CANCELLING


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A terminal status and what belongs to it."""

    status: EngineStatus
    output: Json = None
    error_type: str | None = None
    error: str | None = None
    error_code: str | None = None


_NEW_COLUMNS = [column.name for column in engine_runs.columns]
_INSERT = Statement(
    lambda insert: insert(engine_runs).values(parameters(engine_runs, _NEW_COLUMNS)).on_conflict_do_nothing()
)


def insert_run(
    connection: Connection,
    *,
    run_id: str,
    workflow: str,
    input_: JsonObject,
    parent_id: str | None,
    linked: bool,
    namespace: str,
    now: datetime,
) -> bool:
    """A pending run; False if one with this id exists."""
    values: dict[str, object] = dict.fromkeys(_NEW_COLUMNS)
    values |= {"id": run_id, "workflow": workflow, "status": EngineStatus.PENDING, "input": input_}
    values |= {"parent_id": parent_id, "linked": linked, "namespace": namespace, "fence": 0, "crashes": 0}
    values |= {"created_at": now, "updated_at": now, "compensate": False}
    return _INSERT.run(connection, **values) == 1


_STANDING = Statement(
    select(
        engine_runs.c.id,
        engine_runs.c.workflow,
        engine_runs.c.status,
        engine_runs.c.namespace,
        engine_runs.c.parent_id,
        engine_runs.c.linked,
        engine_runs.c.fence,
        engine_runs.c.crashes,
        engine_runs.c.lease_until,
        engine_runs.c.compensate,
    )
    .where(engine_runs.c.id == _ID)
    .with_for_update()
)


def standing(connection: Connection, run_id: str) -> Standing | None:
    """Where the run stands. Until the transaction ends nobody else changes it."""
    row = _STANDING.one(connection, run_id=run_id)
    return None if row is None else Standing(*row)


_END = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == bindparam("hold_run", type_=SafeText),
        engine_runs.c.fence == bindparam("hold_fence", type_=BigInteger),
        engine_runs.c.status == _FROM,
        kept(),
    )
    .values(
        status=bindparam("new_status", type_=Word(EngineStatus)),
        output=bindparam("new_output", type_=engine_runs.c.output.type),
        error_type=bindparam("new_error_type", type_=SafeText),
        error=bindparam("new_error", type_=SafeText),
        error_code=bindparam("new_error_code", type_=SafeText),
        owner=None,
        lease_until=None,
        wake_at=None,
        ended_at=_NOW,
        updated_at=_NOW,
    )
)
_DROP_WAITS = Statement(delete(waits).where(waits.c.run_id == _ID))


def end(connection: Connection, hold: Hold, ending: Ending, *, from_status: EngineStatus, now: datetime) -> bool:
    """`from_status` -> a terminal status. False: the run is not in `from_status` any more, or not under this hold."""
    ended = _END.run(
        connection,
        **hold.parameters(),
        from_status=from_status,
        new_status=ending.status,
        new_output=ending.output,
        new_error_type=ending.error_type,
        new_error=ending.error,
        new_error_code=ending.error_code,
        now=now,
    )
    if ended:
        _DROP_WAITS.run(connection, run_id=hold.run_id)
    return ended == 1


_CANCELLING = Statement(
    update(engine_runs)
    .where(engine_runs.c.id == _ID, engine_runs.c.status == _FROM, engine_runs.c.fence == _FENCE)
    .values(
        status=EngineStatus.CANCELLING,
        compensate=bindparam("new_compensate", type_=Boolean),
        wake_at=None,
        updated_at=_NOW,
    )
)


def mark_cancelling(connection: Connection, run: Standing, *, compensate: bool, now: datetime) -> None:
    """-> cancelling: whoever drives the run, or finds it undriven, settles it."""
    _CANCELLING.run(
        connection,
        run_id=run.id,
        from_status=run.status,
        expected_fence=run.fence,
        new_compensate=compensate,
        now=now,
    )


_CHILDREN = Statement(
    select(engine_runs.c.id)
    .where(engine_runs.c.parent_id == _ID, engine_runs.c.linked.is_(True))
    .order_by(engine_runs.c.id)
)


def linked_children(connection: Connection, run_id: str) -> list[str]:
    """Ids of the runs that this one started and waits, or waited, for."""
    return [row[0] for row in _CHILDREN.all(connection, run_id=run_id)]


_ADOPT = Statement(
    update(engine_runs)
    .where(engine_runs.c.id == _ID, engine_runs.c.linked.is_(False))
    .values(linked=True, parent_id=bindparam("new_parent", type_=SafeText))
)


def adopt(connection: Connection, run_id: str, parent_id: str) -> bool:
    """Link a detached run to the run that now joins it. False: it is linked already."""
    return _ADOPT.run(connection, run_id=run_id, new_parent=parent_id) == 1
