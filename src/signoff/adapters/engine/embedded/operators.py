"""What an operator does to runs that have ended: drive them again, or delete them."""

from datetime import datetime

from sqlalchemy import BigInteger, Connection, Text, bindparam, delete, update

from signoff.adapters.engine.core import ended, journal, runs, signals
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.failures import fields_of, last_failures, says_failed
from signoff.adapters.engine.core.journal import Kind, State
from signoff.adapters.engine.core.lifecycle import Lifecycle
from signoff.adapters.engine.core.schema import checkpoints
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.embedded.dispatching import retrying_body
from signoff.adapters.stores.sql.statement import Statement
from signoff.adapters.stores.sql.types import SafeText
from signoff.domain.jsonvalue import encode
from signoff.ports.store import Tx

_RUN = bindparam("of_run", type_=SafeText)
_POSITION = bindparam("at_position", type_=BigInteger)
_HERE = (checkpoints.c.run_id == _RUN, checkpoints.c.position == _POSITION)
_FORGET = Statement(delete(checkpoints).where(*_HERE))
_REPEAT = Statement(
    update(checkpoints).where(*_HERE).values(state=State.RETRYING.value, body=bindparam("new_body", type_=Text))
)


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
    found = ended.ended_before(connection, before, namespace=namespace, limit=limit)
    for run_id in found:
        ended.delete_run(connection, run_id)
    return list(found)


def _revive(connection: Connection, run_id: str, *, now: datetime, seen: set[str]) -> list[Woken]:
    seen.add(run_id)
    woken = ended.revive(connection, run_id, now=now)
    run = runs.standing(connection, run_id)
    if woken is None or run is None:
        return []
    for row in [] if run.is_undone else last_failures(journal.load(connection, run_id)):
        if row.kind == Kind.DISPATCH:
            repeat = retrying_body(next_at=now, spared=row.attempt, failure=fields_of(row.body))
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
