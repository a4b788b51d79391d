"""What an operator does to runs that have ended: drive them again, or delete them."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, bindparam, delete, update

from signoff.adapters.engine.embedded import journal, runs, signals
from signoff.adapters.engine.embedded.connection import connection_of
from signoff.adapters.engine.embedded.context import BLOCK
from signoff.adapters.engine.embedded.dispatching import retrying_body
from signoff.adapters.engine.embedded.journal import Kind, Row, State
from signoff.adapters.engine.embedded.lifecycle import Lifecycle
from signoff.adapters.engine.embedded.runs import Woken
from signoff.adapters.engine.embedded.schema import checkpoints
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import SafeText
from signoff.domain.jsonvalue import Json, decode, encode
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx

_RUN = bindparam("of_run", type_=SafeText)
_POSITION = bindparam("at_position", type_=BigInteger)
_HERE = (checkpoints.c.run_id == _RUN, checkpoints.c.position == _POSITION)
_FORGET = Statement(delete(checkpoints).where(*_HERE))
_REPEAT = Statement(
    update(checkpoints).where(*_HERE).values(state=State.RETRYING.value, body=bindparam("new_body", type_=Text))
)

_REVIVABLE = (EngineStatus.FAILED.value, EngineStatus.DEAD.value)


def retry(tx: Tx, run_id: str, *, lifecycle: Lifecycle, now: datetime) -> bool:
    """See `ports.engine.Engine.retry`. Linked children that failed are driven again as well.

    Only failures that nothing was built upon are cleared, that is the ones the run ended with. One that the body
    caught and went on from is history: clearing it would contradict what comes after it. Steps that were started
    and whose outcome is unknown stay as they are: the replay decides what may run again. The journal of a run that
    is undone is all history.
    """
    connection = connection_of(tx)
    run = runs.standing(connection, run_id)
    if run is None or not lifecycle.sees(run):
        return False
    woken = _revive(connection, run_id, now=now, seen=set())
    lifecycle.announce(tx, woken)
    return bool(woken)


def prune(tx: Tx, *, before: datetime, namespace: str, limit: int) -> list[str]:
    """See `ports.engine.Engine.prune`."""
    connection = connection_of(tx)
    ended = runs.ended_before(connection, before, namespace=namespace, limit=limit)
    for run_id in ended:
        runs.delete_run(connection, run_id)
    return list(ended)


def _revive(connection: Connection, run_id: str, *, now: datetime, seen: set[str]) -> list[Woken]:
    seen.add(run_id)
    woken = runs.revive(connection, run_id, now=now)
    run = runs.standing(connection, run_id)
    if woken is None or run is None:
        return []
    for row in [] if run.is_undone else last_failures(journal.load(connection, run_id)):
        if row.kind == Kind.DISPATCH:
            body = _object(row.body)
            repeat = retrying_body(next_at=now, spared=row.attempt, failure=body if isinstance(body, dict) else {})
            _REPEAT.run(connection, of_run=run_id, at_position=row.position, new_body=encode(repeat))
        else:
            _FORGET.run(connection, of_run=run_id, at_position=row.position)
            if row.kind == Kind.SIGNAL:
                signals.begin_wait(connection, run_id=run_id, position=row.position, name=row.name, deadline=None)
    for signal_id, name, payload in signals.untaken(connection, run_id):
        if name.startswith("child:") and says_failed(payload):
            signals.drop(connection, signal_id)
    found = [woken]
    for child_id in runs.linked_children(connection, run_id):
        if child_id not in seen:
            found += _revive(connection, child_id, now=now, seen=seen)
    return found


def last_failures(rows: Sequence[Row]) -> list[Row]:
    """The failures at the end of the journal: no entry that could depend on them follows.

    Branches of one `parallel` do not depend on each other, whatever follows the batch depends on all of them.
    """
    batches = [(row.position, int(row.name)) for row in rows if row.kind == Kind.PARALLEL]

    def branch(position: int) -> tuple[int, int] | None:
        for begin, branches in batches:
            if begin < position <= begin + branches * BLOCK:
                return begin, (position - begin - 1) // BLOCK
        return None

    def depends(later: Row, earlier: Row) -> bool:
        there, here = branch(later.position), branch(earlier.position)
        siblings = there is not None and here is not None and there[0] == here[0] and there[1] != here[1]
        return later.position > earlier.position and not siblings

    return [row for row in rows if _is_failure(row) and not any(depends(later, row) for later in rows)]


def _is_failure(row: Row) -> bool:
    if row.kind == Kind.SIGNAL:
        return row.name.startswith("child:") and row.state == State.DONE and says_failed(row.body)
    return row.state == State.FAILED


def says_failed(outcome: str) -> bool:
    fields = _object(outcome)
    return isinstance(fields, dict) and fields.get("status") in _REVIVABLE


def _object(text: str) -> Json:
    try:
        return decode(text)
    except ValueError:
        return None
