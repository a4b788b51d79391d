"""A run's journal in the database: guarded writes, and the read that a replay starts from."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Text,
    bindparam,
    insert,
    literal,
    or_,
    select,
    update,
)

from signoff.adapters.engine.core.codec import load_value
from signoff.adapters.engine.core.control import Refused, Why
from signoff.adapters.engine.core.schema import checkpoints, engine_runs
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import Instant, SafeText
from signoff.domain.jsonvalue import Json
from signoff.ports.engine import EngineStatus, JournalEntry


class Kind(StrEnum):
    """What asked for a position."""

    RECORD = "record"
    DISPATCH = "dispatch"
    DEADLINE = "deadline"
    SIGNAL = "signal"
    CHILD = "child"
    START_CHILD = "start_child"
    PATCH = "patch"
    PARALLEL = "parallel"
    NOW = "now"


class State(StrEnum):
    """What became of it. `STARTED` and `RETRYING` are no outcomes: they tell a replay where a dispatch stood."""

    STARTED = "started"
    RETRYING = "retrying"
    DONE = "done"
    FAILED = "failed"
    DOUBT = "doubt"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One position. `body` is decoded; what it holds depends on `state` (see `codec`)."""

    position: int
    kind: str
    name: str
    state: str
    attempt: int
    body: Json
    at: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """One position as stored."""

    position: int
    kind: str
    name: str
    state: str
    attempt: int
    body: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The right to write: this run under this fence, and `tip`, the last result the body saw before it was durable.

    Results of repeatable steps are submitted without waiting (`transact_soon`) and the body goes on with them. The
    store puts them before whatever the run submits later, but drops a piece that fails. So each write names the
    last such result and is refused unless the database has it; as the pieces name their predecessors in the same
    way, the last one stands for all. A worker that lost the run cannot get past this either: fences only rise, so
    when a piece was refused by the fence, everything behind it is.

    `undoing`: the run is cancelling, and this is the right to undo it.
    """

    run_id: str
    fence: int
    tip: int = 0
    undoing: bool = False

    def parameters(self) -> dict[str, object]:
        """For statements that are guarded by `OURS` and its like."""
        return {"hold_run": self.run_id, "hold_fence": self.fence, "hold_tip": self.tip}

    def append(self, connection: Connection, mark: "Mark") -> None:
        """Write a new position, or raise `Refused`."""
        if not append(connection, self, mark):
            raise refusal(connection, self)

    def is_good(self, connection: Connection) -> bool:
        """Lock the run. False: it is not ours any more."""
        return _CHECK.one(connection, **self.parameters()) is not None

    def check(self, connection: Connection) -> None:
        """Lock the run, or raise `Refused`."""
        if not self.is_good(connection):
            raise refusal(connection, self)


def kept() -> ColumnElement[bool]:
    """The last result that the body saw is in the database (see `Hold`)."""
    seen = checkpoints.alias("seen")
    durable = select(seen.c.position).where(
        seen.c.run_id == bindparam("hold_run", type_=SafeText),
        seen.c.position == bindparam("hold_tip", type_=BigInteger),
        seen.c.state != State.STARTED.value,
    )
    return or_(bindparam("hold_tip", type_=BigInteger) == 0, durable.exists())


def _held(*statuses: EngineStatus) -> ColumnElement[bool]:
    """The run is still ours. Locks its row where the database has row locks: a claim waits for us, or we for it."""
    row = select(engine_runs.c.id).where(
        engine_runs.c.id == bindparam("hold_run", type_=SafeText),
        engine_runs.c.fence == bindparam("hold_fence", type_=BigInteger),
        or_(*(engine_runs.c.status == status for status in statuses)),
    )
    return row.with_for_update(read=True).exists()


#: For statements on `engine_runs` itself.
OURS: ColumnElement[bool] = (
    (engine_runs.c.id == bindparam("hold_run", type_=SafeText))
    & (engine_runs.c.fence == bindparam("hold_fence", type_=BigInteger))
    & (engine_runs.c.status == EngineStatus.RUNNING)
    & kept()
)

_COLUMNS = ["run_id", "position", "kind", "name", "state", "attempt", "body", "at"]
_VALUES = select(
    bindparam("hold_run", type_=SafeText),
    bindparam("at_position", type_=BigInteger),
    bindparam("new_kind", type_=SafeText),
    bindparam("new_name", type_=SafeText),
    bindparam("new_state", type_=SafeText),
    bindparam("new_attempt", type_=Integer),
    bindparam("new_body", type_=Text),
    bindparam("new_at", type_=Instant),
)


def _insert(status: EngineStatus) -> Statement:
    return Statement(insert(checkpoints).from_select(_COLUMNS, _VALUES.where(_held(status), kept())))


_INSERT = _insert(EngineStatus.RUNNING)
_INSERT_UNDO = _insert(EngineStatus.CANCELLING)


def _update(*statuses: EngineStatus) -> Statement:
    return Statement(
        update(checkpoints)
        .where(
            checkpoints.c.run_id == bindparam("hold_run", type_=SafeText),
            checkpoints.c.position == bindparam("at_position", type_=BigInteger),
            _held(*statuses),
            kept(),
        )
        .values(
            state=bindparam("new_state", type_=SafeText),
            attempt=bindparam("new_attempt", type_=Integer),
            body=bindparam("new_body", type_=Text),
            at=bindparam("new_at", type_=Instant),
        )
    )


_UPDATE = _update(EngineStatus.RUNNING)
_UPDATE_LATE = _update(EngineStatus.RUNNING, EngineStatus.CANCELLING)

_CHECK = Statement(select(literal(1)).where(_held(EngineStatus.RUNNING)))

_STANDING = Statement(
    select(engine_runs.c.fence, engine_runs.c.status).where(engine_runs.c.id == bindparam("hold_run", type_=SafeText))
)

_LOAD = Statement(
    select(
        checkpoints.c.position,
        checkpoints.c.kind,
        checkpoints.c.name,
        checkpoints.c.state,
        checkpoints.c.attempt,
        checkpoints.c.body,
        checkpoints.c.at,
    )
    .where(checkpoints.c.run_id == bindparam("run_id", type_=SafeText))
    .order_by(checkpoints.c.position)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What to write at a position. `body` is JSON text."""

    position: int
    kind: Kind
    name: str
    state: State
    body: str
    at: datetime
    attempt: int = 1


def append(connection: Connection, hold: Hold, mark: Mark) -> bool:
    """Write a new position; one statement. False: the hold is not good any more, nothing was written."""
    statement = _INSERT_UNDO if hold.undoing else _INSERT
    return statement.run(connection, **_parameters(hold, mark)) == 1


def change(connection: Connection, hold: Hold, mark: Mark, *, late: bool = False) -> bool:
    """Change a dispatch's position; one statement. False as with `append`, or if the position was never written.

    `late`: what a step that was running brings home counts, also when the run was cancelled meanwhile.
    """
    statement = _UPDATE_LATE if late or hold.undoing else _UPDATE
    return statement.run(connection, **_parameters(hold, mark)) == 1


def refusal(connection: Connection, hold: Hold) -> Refused:
    """Why a guarded statement wrote nothing."""
    standing = _STANDING.one(connection, hold_run=hold.run_id)
    if standing is None or standing[0] != hold.fence:
        return Refused(hold.run_id, Why.LOST)
    match standing[1]:
        case EngineStatus.RUNNING:
            return Refused(hold.run_id, Why.GAP)
        case EngineStatus.CANCELLING if hold.undoing:
            return Refused(hold.run_id, Why.GAP)
        case EngineStatus.CANCELLING:
            return Refused(hold.run_id, Why.CANCELLED)
        case _:
            return Refused(hold.run_id, Why.LOST)


def load(connection: Connection, run_id: str) -> list[Row]:
    """The whole journal in position order; one query."""
    return [Row(*row) for row in _LOAD.all(connection, run_id=run_id)]


def decode(row: Row) -> Entry:
    """Raises `ValueError` if the body is not JSON."""
    return Entry(
        position=row.position,
        kind=row.kind,
        name=row.name,
        state=row.state,
        attempt=row.attempt,
        body=load_value(row.body),
        at=row.at,
    )


def shown(row: Row) -> JournalEntry:
    """The entry for people; a body that cannot be read is shown as the text it is."""
    try:
        body = load_value(row.body)
    except ValueError:
        body = row.body
    return JournalEntry(
        position=row.position,
        kind=row.kind,
        name=row.name,
        state=row.state,
        attempt=row.attempt,
        body=body,
        at=row.at,
    )


def _parameters(hold: Hold, mark: Mark) -> dict[str, object]:
    return {
        **hold.parameters(),
        "at_position": mark.position,
        "new_kind": mark.kind,
        "new_name": mark.name,
        "new_state": mark.state,
        "new_attempt": mark.attempt,
        "new_body": mark.body,
        "new_at": mark.at,
    }
