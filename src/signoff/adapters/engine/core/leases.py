"""Who drives a run: claimed under a lease, kept, parked, let go, or taken from a worker that crashed."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, and_, bindparam, case, func, or_, select, type_coerce, update

from signoff.adapters.engine.core.journal import OURS, Hold
from signoff.adapters.engine.core.runs import IN_NAMESPACE, Standing, standing
from signoff.adapters.engine.core.schema import engine_runs, waits
from signoff.adapters.engine.core.wakeups import waited_for
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.ports.engine import EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)


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


_PARK = Statement(
    update(engine_runs)
    .where(OURS)
    .values(
        status=case((waited_for(), EngineStatus.PENDING.value), else_=EngineStatus.SUSPENDED.value),
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
DRIVEN_AGAIN = case(
    (engine_runs.c.compensate.is_(True), EngineStatus.CANCELLING.value), else_=EngineStatus.PENDING.value
)
_CRASHED = Statement(
    update(engine_runs)
    .where(
        engine_runs.c.id == _ID,
        engine_runs.c.fence == bindparam("expected_fence", type_=BigInteger),
        or_(
            engine_runs.c.status == EngineStatus.RUNNING,
            and_(engine_runs.c.status == EngineStatus.CANCELLING, engine_runs.c.compensate.is_(True)),
        ),
        or_(engine_runs.c.lease_until.is_(None), engine_runs.c.lease_until < _NOW),
    )
    .values(
        status=DRIVEN_AGAIN,
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
