"""Rows of runs that are undone: cancelling all the way, with a lease while a worker is at it."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, bindparam, select, type_coerce, update

from signoff.adapters.engine.core import runs
from signoff.adapters.engine.core.leases import Claimed
from signoff.adapters.engine.core.schema import engine_runs
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.ports.engine import EngineStatus

_ID = bindparam("run_id", type_=SafeText)
_NOW = bindparam("now", type_=Instant)
_UNDONE = (engine_runs.c.id == _ID, engine_runs.c.status == EngineStatus.CANCELLING, engine_runs.c.compensate.is_(True))

_CLAIM = Statement(
    update(engine_runs)
    .where(*_UNDONE, engine_runs.c.lease_until.is_(None))
    .values(
        fence=engine_runs.c.fence + 1,
        owner=bindparam("new_owner", type_=SafeText),
        lease_until=bindparam("new_lease", type_=Instant),
        updated_at=_NOW,
    )
    .returning(
        engine_runs.c.fence, engine_runs.c.workflow, engine_runs.c.namespace, type_coerce(engine_runs.c.input, Text)
    )
)
_LET_GO = Statement(
    update(engine_runs)
    .where(*_UNDONE, engine_runs.c.fence == bindparam("expected_fence", type_=BigInteger))
    .values(owner=None, lease_until=None, updated_at=_NOW)
)
_LIVE_CHILDREN = Statement(
    select(engine_runs.c.id).where(
        engine_runs.c.parent_id == _ID, engine_runs.c.linked.is_(True), engine_runs.c.ended_at.is_(None)
    )
)


def claim(connection: Connection, run_id: str, *, owner: str, now: datetime, lease_until: datetime) -> Claimed | None:
    """The right to undo the run, under the next fence. None: it is not to be undone, somebody does, or not yet.

    From here on the journal of its body stands still, so every replay finds the same undos at the same positions.
    """
    run = runs.standing(connection, run_id)
    if run is None or not run.is_undone or _waits_for_children(connection, run_id):
        return None
    row = _CLAIM.one(connection, run_id=run_id, new_owner=owner, new_lease=lease_until, now=now)
    return None if row is None else replace(Claimed(*row), undoing=True)


def let_go(connection: Connection, run_id: str, *, fence: int, now: datetime) -> bool:
    """Leave it to whoever claims it next. False: it is held under another fence, or has ended."""
    return _LET_GO.run(connection, run_id=run_id, expected_fence=fence, now=now) == 1


def _waits_for_children(connection: Connection, run_id: str) -> bool:
    """Whether children have to be undone first. In a circle of runs that join each other nobody waits."""
    seen, left = {run_id}, [run_id]
    while left:
        for (child_id,) in _LIVE_CHILDREN.all(connection, run_id=left.pop()):
            if child_id == run_id:
                return False
            if child_id not in seen:
                seen.add(child_id)
                left.append(child_id)
    return len(seen) > 1
