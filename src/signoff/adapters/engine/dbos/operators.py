"""What people do to runs from outside: read their history, drive them again, delete them."""

from dataclasses import replace
from datetime import datetime

from dbos import DBOSClient
from sqlalchemy import Connection

from signoff.adapters.engine.core import ended, runs, signals
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.failures import last_failures, says_failed
from signoff.adapters.engine.core.journal import Kind, State, shown
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.dbos import claims, journal, tasks
from signoff.adapters.engine.dbos.dispatching import requeue
from signoff.adapters.engine.dbos.internals import forget_steps
from signoff.adapters.engine.dbos.lifecycle import DbosLifecycle
from signoff.adapters.engine.dbos.queues import Queues, task_workflow_id
from signoff.adapters.engine.dbos.tasks import TaskRow, TaskState
from signoff.domain.jsonvalue import decode
from signoff.ports.engine import JournalEntry
from signoff.ports.store import Tx


def history(client: DBOSClient, connection: Connection, run_id: str) -> list[JournalEntry]:
    """The journal, and between its entries the steps that are on their way."""
    entries = [shown(row) for row in journal.load(client, connection, run_id)]
    known = {entry.position for entry in entries}
    started = [row for row in tasks.of_run(connection, run_id) if row.attempt and row.position not in known]
    entries += [_on_its_way(row) for row in started]
    return sorted(entries, key=lambda entry: entry.position)


def retry(tx: Tx, run_id: str, *, lifecycle: DbosLifecycle, queues: Queues, now: datetime) -> bool:
    """See `ports.engine.Engine.retry`, and `embedded.operators.retry` for what is cleared."""
    run = runs.standing(connection_of(tx), run_id)
    if run is None or not lifecycle.sees(run):
        return False
    woken = _revive(tx, queues, run_id, now=now, seen=set())
    lifecycle.announce(tx, woken)
    return bool(woken)


def prune(tx: Tx, queues: Queues, *, before: datetime, namespace: str, limit: int) -> list[str]:
    """See `ports.engine.Engine.prune`.

    DBOS's rows go first, in a transaction of their own: if ours does not commit, the next call finds the rest.
    """
    connection = connection_of(tx)
    found = list(ended.ended_before(connection, before, namespace=namespace, limit=limit))
    for run_id in found:
        queues.client.delete_workflows([run_id, *_step_workflows(connection, run_id)])
        ended.delete_run(connection, run_id)
        tasks.delete_run(connection, run_id)
    return found


def _revive(tx: Tx, queues: Queues, run_id: str, *, now: datetime, seen: set[str]) -> list[Woken]:
    seen.add(run_id)
    connection = connection_of(tx)
    woken = ended.revive(connection, run_id, now=now)
    if woken is None:
        return []
    namespace = claims.pending_in(connection, run_id) or ""
    failures = last_failures(journal.load(queues.client, connection, run_id))
    forget_steps(queues.client, connection, run_id, [row.position for row in failures])
    failed = {row.position for row in failures}
    for step in tasks.of_run(connection, run_id):
        if step.position in failed or step.state is TaskState.QUEUED:
            spared = replace(step, spared=step.attempt, failure=None)
            requeue(tx, queues, step, spared, namespace=namespace)
    for row in failures:
        if row.kind == Kind.SIGNAL:
            signals.begin_wait(connection, run_id=run_id, position=row.position, name=row.name, deadline=None)
    for signal_id, name, payload in signals.untaken(connection, run_id):
        if name.startswith("child:") and says_failed(payload):
            signals.drop(connection, signal_id)
    found = [woken]
    for child_id in runs.linked_children(connection, run_id):
        if child_id not in seen:
            found += _revive(tx, queues, child_id, now=now, seen=seen)
    return found


def _step_workflows(connection: Connection, run_id: str) -> list[str]:
    return [
        task_workflow_id(run_id, row.position, number)
        for row in tasks.of_run(connection, run_id)
        for number in range(1, row.dispatches + 1)
    ]


def _on_its_way(row: TaskRow) -> JournalEntry:
    """As the embedded engine's journal has it: started, or waiting for the next attempt; the outcome is not there."""
    state, body = State.STARTED, None
    if row.state in (TaskState.RETRYING, TaskState.QUEUED):
        state, body = State.RETRYING, None if row.failure is None else decode(row.failure)
        if isinstance(body, dict) and row.next_at is not None:
            body = {**body, "next_at": row.next_at.isoformat()}
    return JournalEntry(
        position=row.position,
        kind=Kind.DISPATCH.value,
        name=row.name,
        state=state.value,
        attempt=row.attempt,
        body=body,
        at=row.started_at or row.created_at,
    )
