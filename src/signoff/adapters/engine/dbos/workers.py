"""Rows of `engine_workers`: who lives, by the clock of who looks."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, select

from signoff.adapters.engine.dbos.schema import engine_workers
from signoff.adapters.stores.sql.statement import Statement, parameters
from signoff.adapters.stores.sql.types import Instant, SafeText

_BEAT = Statement(
    lambda insert: (
        insert(engine_workers)
        .values(parameters(engine_workers, ["id", "beat_at"]))
        .on_conflict_do_update(index_elements=["id"], set_={"beat_at": bindparam("beat_at", type_=Instant)})
    )
)
_BURY = Statement(
    delete(engine_workers)
    .where(
        engine_workers.c.beat_at < bindparam("before", type_=Instant),
        engine_workers.c.id != bindparam("own_id", type_=SafeText),
    )
    .returning(engine_workers.c.id)
)
_LEAVE = Statement(delete(engine_workers).where(engine_workers.c.id == bindparam("own_id", type_=SafeText)))
_LIVING = Statement(select(engine_workers.c.id))


def beat(connection: Connection, worker_id: str, now: datetime) -> None:
    """The worker lives."""
    _BEAT.run(connection, id=worker_id, beat_at=now)


def bury(connection: Connection, *, before: datetime, own_id: str) -> list[str]:
    """Delete the workers that have not beaten since `before`. Each dead one is returned to one caller only."""
    return [row[0] for row in _BURY.all(connection, before=before, own_id=own_id)]


def leave(connection: Connection, worker_id: str) -> None:
    """The worker takes its leave; what it still holds is recovered like a dead one's."""
    _LEAVE.run(connection, own_id=worker_id)


def dead(connection: Connection, executor_ids: Iterable[str]) -> list[str]:
    """Those of `executor_ids` that are no living workers."""
    living = {row[0] for row in _LIVING.all(connection)}
    return sorted(set(executor_ids) - living)
