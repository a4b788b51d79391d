"""Rows of `engine_runs`. Every change of a status is one conditional statement, so the first terminal one wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Text,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    type_coerce,
    update,
)

from signoff.adapters.engine.core.journal import OURS, Hold, kept
from signoff.adapters.engine.core.schema import checkpoints, engine_runs, signals, waits
from signoff.adapters.stores.sql.statement import RowValues, Statement, parameters
from signoff.adapters.stores.sql.types import Instant, SafeText, Word
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import EngineRun, EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)
_LIMIT = bindparam("row_limit", type_=BigInteger)
_FENCE = bindparam("expected_fence", type_=BigInteger)
_FROM = bindparam("from_status", type_=Word(EngineStatus))
_NAMESPACE = bindparam("in_namespace", type_=SafeText)

#: A worker of the namespace "" drives and sees all of them.
IN_NAMESPACE: ColumnElement[bool] = or_(_NAMESPACE == "", engine_runs.c.namespace == _NAMESPACE)

TERMINAL = [status for status in EngineStatus if status.is_terminal]


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


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a worker needs to drive a run. `input` is still JSON text: a broken one must not break the claim.

    `undoing`: the run was cancelled and is to be undone.
    """

    fence: int
    workflow: str
    namespace: str
    input: str
    undoing: bool = False


@dataclass(frozen=True, slots=True)
class Woken:
    """A run that can go on."""

    id: str
    workflow: str


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


_CLAIM = Statement(
    update(engine_runs)
    .where(engine_runs.c.id == _ID, engine_runs.c.status == EngineStatus.PENDING)
    .values(
        status=EngineStatus.RUNNING,
        fence=engine_runs.c.fence + 1,
        owner=bindparam("new_owner", type_=SafeText),
        lease_until=bindparam("new_lease", type_=Instant),
        wake_at=None,
        updated_at=_NOW,
    )
    .returning(
        engine_runs.c.fence, engine_runs.c.workflow, engine_runs.c.namespace, type_coerce(engine_runs.c.input, Text)
    )
)


def claim(connection: Connection, run_id: str, *, owner: str, now: datetime, lease_until: datetime) -> Claimed | None:
    """pending -> running, under the next fence. None: somebody else has it, or it waits or has ended."""
    row = _CLAIM.one(connection, run_id=run_id, new_owner=owner, new_lease=lease_until, now=now)
    return None if row is None else Claimed(*row)


def _waited_for() -> ColumnElement[bool]:
    """A signal that the run waits for has come and was not taken."""
    return (
        select(waits.c.position)
        .join(signals, and_(signals.c.run_id == waits.c.run_id, signals.c.name == waits.c.name))
        .where(waits.c.run_id == engine_runs.c.id, signals.c.position.is_(None))
        .correlate(engine_runs)
        .exists()
    )


_PARK = Statement(
    update(engine_runs)
    .where(OURS)
    .values(
        status=case((_waited_for(), EngineStatus.PENDING.value), else_=EngineStatus.SUSPENDED.value),
        wake_at=select(func.min(waits.c.deadline))
        .where(waits.c.run_id == engine_runs.c.id)
        .correlate(engine_runs)
        .scalar_subquery(),
        # It got as far as a wait: earlier crashes say nothing about what comes next.
        crashes=0,
        owner=None,
        lease_until=None,
        updated_at=_NOW,
    )
    .returning(engine_runs.c.status, engine_runs.c.wake_at, engine_runs.c.workflow)
)


def park(connection: Connection, hold: Hold, *, now: datetime) -> tuple[EngineStatus, datetime | None, str] | None:
    """running -> suspended, or pending if a signal has come meanwhile. None: refused.

    Returns the status, the earliest deadline and the workflow.
    """
    # Locked by a statement of its own: one that waited for a signal's transaction would still look for signals as of
    # before it (PostgreSQL), and the signal has seen a run that is not parked yet, so nobody would wake it.
    standing(connection, hold.run_id)
    row = _PARK.one(connection, **hold.parameters(), now=now)
    return None if row is None else (row[0], row[1], row[2])


_RELEASE = Statement(
    update(engine_runs).where(OURS).values(status=EngineStatus.PENDING, owner=None, lease_until=None, updated_at=_NOW)
)


def release(connection: Connection, hold: Hold, *, now: datetime) -> bool:
    """running -> pending, for whoever claims it next. False: refused."""
    return _RELEASE.run(connection, **hold.parameters(), now=now) == 1


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


# waking ---------------------------------------------------------------------------------------------------------

_TO_PENDING = {"status": EngineStatus.PENDING, "wake_at": None, "updated_at": _NOW}
_WOKEN = (engine_runs.c.id, engine_runs.c.workflow)

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
    .returning(*_WOKEN)
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
    .returning(*_WOKEN)
)
_NEXT_DUE = Statement(select(func.min(engine_runs.c.wake_at)).where(engine_runs.c.wake_at.is_not(None)))

_untaken = select(signals.c.run_id).where(signals.c.position.is_(None))
_WAKE_LOST = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id.in_(_untaken),
        engine_runs.c.status == EngineStatus.SUSPENDED,
        _waited_for(),
        IN_NAMESPACE,
    )
    .values(_TO_PENDING)
    .returning(*_WOKEN)
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
    select(*_WOKEN)
    .where(engine_runs.c.status == EngineStatus.PENDING, engine_runs.c.id > bindparam("after_id", type_=SafeText))
    .where(IN_NAMESPACE)
    .order_by(engine_runs.c.id)
    .limit(_LIMIT)
)


def pending(connection: Connection, *, namespace: str, after_id: str, limit: int) -> list[Woken]:
    """Runs that wait for a worker, by id."""
    return [Woken(*row) for row in _PENDING.all(connection, in_namespace=namespace, after_id=after_id, row_limit=limit)]


# leases ---------------------------------------------------------------------------------------------------------

_RENEW = Statement(
    update(engine_runs)
    .where(engine_runs.c.owner == bindparam("by_owner", type_=SafeText))
    .values(lease_until=bindparam("new_lease", type_=Instant))
)
_EXPIRED = Statement(
    select(engine_runs.c.id)
    .where(
        or_(engine_runs.c.status == EngineStatus.RUNNING, engine_runs.c.status == EngineStatus.CANCELLING),
        or_(engine_runs.c.lease_until.is_(None), engine_runs.c.lease_until < _NOW),
        IN_NAMESPACE,
    )
    .order_by(engine_runs.c.id)
)
_OWN_CANCELLING = Statement(
    select(engine_runs.c.id).where(
        engine_runs.c.owner == bindparam("by_owner", type_=SafeText),
        engine_runs.c.status == EngineStatus.CANCELLING,
    )
)
#: A cancel that compensates is not forgotten, whatever happens to the run.
_DRIVEN_AGAIN = case(
    (engine_runs.c.compensate.is_(True), EngineStatus.CANCELLING.value), else_=EngineStatus.PENDING.value
)
_CRASHED = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == _ID,
        engine_runs.c.fence == _FENCE,
        or_(
            engine_runs.c.status == EngineStatus.RUNNING,
            and_(engine_runs.c.status == EngineStatus.CANCELLING, engine_runs.c.compensate.is_(True)),
        ),
        or_(engine_runs.c.lease_until.is_(None), engine_runs.c.lease_until < _NOW),
    )
    .values(
        status=_DRIVEN_AGAIN,
        crashes=engine_runs.c.crashes + 1,
        owner=None,
        lease_until=None,
        updated_at=_NOW,
    )
    .returning(engine_runs.c.crashes)
)


def renew(connection: Connection, *, owner: str, lease_until: datetime) -> None:
    """Keep every run that `owner` holds; one statement."""
    _RENEW.run(connection, by_owner=owner, new_lease=lease_until)


def expired(connection: Connection, *, now: datetime, namespace: str) -> list[str]:
    """Runs that somebody began to drive (or to cancel) and nobody drives any more."""
    return [row[0] for row in _EXPIRED.all(connection, now=now, in_namespace=namespace)]


def own_cancelling(connection: Connection, *, owner: str) -> list[str]:
    """Runs driven by `owner` that were cancelled, here or by another process."""
    return [row[0] for row in _OWN_CANCELLING.all(connection, by_owner=owner)]


def take_from_crashed(connection: Connection, run: Standing, *, now: datetime) -> int | None:
    """running with an expired lease -> pending, one crash more. Returns the count; None: it is driven after all.

    A run that is undone stays cancelling, for whoever takes it next.
    """
    row = _CRASHED.one(connection, run_id=run.id, expected_fence=run.fence, now=now)
    return None if row is None else int(row[0])


# reading --------------------------------------------------------------------------------------------------------

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
_LIST_BY_STATUS = Statement(_ALL.where(engine_runs.c.status == _FROM).order_by(engine_runs.c.id).limit(_LIMIT))
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


# operators ------------------------------------------------------------------------------------------------------

_REVIVE = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == _ID,
        or_(engine_runs.c.status == EngineStatus.FAILED, engine_runs.c.status == EngineStatus.DEAD),
    )
    .values(
        status=_DRIVEN_AGAIN,
        crashes=0,
        error_type=None,
        error=None,
        error_code=None,
        ended_at=None,
        updated_at=_NOW,
    )
    .returning(*_WOKEN)
)
_ENDED_BEFORE = Statement(
    select(engine_runs.c.id)
    .where(engine_runs.c.ended_at < bindparam("before", type_=Instant), IN_NAMESPACE)
    .order_by(engine_runs.c.ended_at)
    .limit(_LIMIT)
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
