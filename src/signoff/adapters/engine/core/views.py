"""Runs as people see them."""

from sqlalchemy import BigInteger, Connection, bindparam, select

from signoff.adapters.engine.core.runs import IN_NAMESPACE
from signoff.adapters.engine.core.schema import engine_runs, waits
from signoff.adapters.stores.sql.statement import RowValues, Statement
from signoff.adapters.stores.sql.types import SafeText, Word
from signoff.ports.engine import EngineRun, EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_LIMIT = bindparam("row_limit", type_=BigInteger)

_SHOWN = (
    engine_runs.c.id,
    engine_runs.c.workflow,
    engine_runs.c.status,
    engine_runs.c.input,
    engine_runs.c.output,
    engine_runs.c.error_type,
    engine_runs.c.error,
    engine_runs.c.error_code,
    engine_runs.c.parent_id,
    engine_runs.c.namespace,
    engine_runs.c.fence,
    engine_runs.c.crashes,
    engine_runs.c.owner,
    engine_runs.c.lease_until,
    engine_runs.c.wake_at,
    engine_runs.c.created_at,
    engine_runs.c.updated_at,
)
_GET = Statement(select(*_SHOWN).where(engine_runs.c.id == _ID, IN_NAMESPACE))
_ALL = select(*_SHOWN).where(IN_NAMESPACE, engine_runs.c.id > bindparam("after_id", type_=SafeText))
_LIST = Statement(_ALL.order_by(engine_runs.c.id).limit(_LIMIT))
_LIST_BY_STATUS = Statement(
    _ALL.where(engine_runs.c.status == bindparam("from_status", type_=Word(EngineStatus)))
    .order_by(engine_runs.c.id)
    .limit(_LIMIT)
)
_WAITS = Statement(select(waits.c.name).where(waits.c.run_id == _ID).order_by(waits.c.position))


def get(connection: Connection, run_id: str, *, namespace: str) -> EngineRun | None:
    """The run, if it is in the namespace."""
    row = _GET.one(connection, run_id=run_id, in_namespace=namespace)
    return None if row is None else _shown(connection, row)


def page(
    connection: Connection, *, status: EngineStatus | None, namespace: str, limit: int, after_id: str
) -> list[EngineRun]:
    """Runs by id, after `after_id`."""
    values: dict[str, object] = {"in_namespace": namespace, "row_limit": limit, "after_id": after_id}
    if status is None:
        rows = _LIST.all(connection, **values)
    else:
        rows = _LIST_BY_STATUS.all(connection, **values, from_status=status)
    return [_shown(connection, row) for row in rows]


def _shown(connection: Connection, row: RowValues) -> EngineRun:
    names = (column.name for column in _SHOWN)
    waiting = tuple(wait[0] for wait in _WAITS.all(connection, run_id=row[0]))
    return EngineRun(**dict(zip(names, row, strict=True)), waits=waiting)
