"""Rows of `signals` and `waits`."""

from datetime import datetime

from sqlalchemy import BigInteger, Connection, bindparam, delete, func, select, update

from signoff.adapters.engine.core.schema import signals, waits
from signoff.adapters.stores.sql.statement import Statement, parameters
from signoff.adapters.stores.sql.types import SafeText

_RUN = bindparam("of_run", type_=SafeText)
_NAME = bindparam("of_name", type_=SafeText)
_POSITION = bindparam("at_position", type_=BigInteger)

_LEAVE = Statement(
    lambda insert: (
        insert(signals)
        .values(parameters(signals, ["run_id", "dedup_key", "name", "payload", "at"]))
        .on_conflict_do_nothing()
    )
)


def leave(connection: Connection, *, run_id: str, name: str, payload: str, dedup_key: str, at: datetime) -> bool:
    """Leave a signal; `payload` is JSON text. False: one with this key came before."""
    return _LEAVE.run(connection, run_id=run_id, dedup_key=dedup_key, name=name, payload=payload, at=at) == 1


_first = (
    select(func.min(signals.c.id))
    .where(signals.c.run_id == _RUN, signals.c.name == _NAME, signals.c.position.is_(None))
    .scalar_subquery()
)
_TAKE = Statement(update(signals).where(signals.c.id == _first).values(position=_POSITION).returning(signals.c.payload))


def take(connection: Connection, *, run_id: str, name: str, position: int) -> str | None:
    """Take the oldest signal of this name; its payload as JSON text, or None."""
    row = _TAKE.one(connection, of_run=run_id, of_name=name, at_position=position)
    return None if row is None else str(row[0])


_UNTAKEN = Statement(
    select(signals.c.id, signals.c.name, signals.c.payload).where(
        signals.c.run_id == _RUN, signals.c.position.is_(None)
    )
)
_DROP = Statement(delete(signals).where(signals.c.id == bindparam("signal_id", type_=signals.c.id.type)))


def untaken(connection: Connection, run_id: str) -> list[tuple[int, str, str]]:
    """Id, name and payload (JSON text) of what nobody took."""
    return [(row[0], row[1], row[2]) for row in _UNTAKEN.all(connection, of_run=run_id)]


def drop(connection: Connection, signal_id: int) -> None:
    """Forget a signal."""
    _DROP.run(connection, signal_id=signal_id)


_WAIT = Statement(
    lambda insert: (
        insert(waits).values(parameters(waits, ["run_id", "position", "name", "deadline"])).on_conflict_do_nothing()
    )
)
_WAITED = Statement(delete(waits).where(waits.c.run_id == _RUN, waits.c.position == _POSITION))


def begin_wait(connection: Connection, *, run_id: str, position: int, name: str, deadline: datetime | None) -> None:
    """Say what the run waits for; harmless if it was said before."""
    _WAIT.run(connection, run_id=run_id, position=position, name=name, deadline=deadline)


def end_wait(connection: Connection, *, run_id: str, position: int) -> None:
    """The wait has its outcome."""
    _WAITED.run(connection, of_run=run_id, at_position=position)
