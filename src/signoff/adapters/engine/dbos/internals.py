"""Everything that this adapter uses of DBOS beyond its public API, in one place.

DBOS is pinned to a minor version, and `tests/conformance/engine/test_dbos_internals.py` holds each of these to what
is needed of it, so that an upgrade which changes one fails there.
"""

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, StepInfo
from dbos._core import ActiveWorkflowById, QueueBucket
from dbos._serialization import DefaultSerializer
from sqlalchemy import Connection, delete, select, update

from signoff.errors import SignoffError

_QUEUE_THREAD = "queue-worker-"
_LOOK_S = 0.01

#: Statuses of a workflow that nobody drives or will drive.
ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


class PickleRefused(SignoffError):
    """The database holds a pickle where only JSON is written. Reading it would execute whatever it says."""

    code = "pickle_refused"


def refuse_pickles() -> None:
    """Make DBOS in this process neither read nor write pickles.

    A JSON serializer in its settings is not enough: each row names the decoder that reads it, so whoever can write
    to the database could have any worker execute code.
    """
    DefaultSerializer.serialize = _refuse  # type: ignore[method-assign, assignment]
    DefaultSerializer.deserialize = _refuse  # type: ignore[method-assign, assignment]


def _refuse(_serializer: object, _data: object) -> NoReturn:
    raise PickleRefused("a pickle was met in DBOS's tables; signoff reads and writes JSON only")


def append_step(
    client: DBOSClient, connection: Connection, *, run_id: str, position: int, name: str, output: str, at_ms: int
) -> None:
    """Journal a step as DBOS itself does, but in the caller's transaction. `output` is JSON text.

    The public ways commit in transactions of their own: a crash between the two would repeat the caller's writes.
    The caller answers for the right to write; DBOS's own check of it needs a context that only its steps have.
    """
    database = client._sys_db
    database._apply_caller_schema(connection)
    database._record_operation_result_txn(
        {
            "workflow_uuid": run_id,
            "function_id": position,
            "function_name": name,
            "output": output,
            "error": None,
            "serialization": DBOSPortableJSONSerializer().name(),
            "started_at_epoch_ms": at_ms,
            "child_workflow_id": None,
        },
        at_ms,
        connection,
    )


def read_steps(client: DBOSClient, connection: Connection, run_id: str) -> list[StepInfo]:
    """A workflow's steps as `DBOSClient.list_workflow_steps` has them, with those that the caller's transaction wrote.

    What cannot be read as JSON has no output here.
    """
    database = client._sys_db
    database._apply_caller_schema(connection)
    steps: Any = database.tables.operation_outputs
    rows = connection.execute(select(steps).where(steps.c.workflow_uuid == run_id).order_by(steps.c.function_id))
    return [
        StepInfo(
            function_id=row["function_id"],
            function_name=row["function_name"],
            output=_read(row["output"], row["serialization"]),
            error=None,
            child_workflow_id=row["child_workflow_id"],
            child_shard_key=None,
            started_at_epoch_ms=row["started_at_epoch_ms"],
            completed_at_epoch_ms=row["completed_at_epoch_ms"],
        )
        for row in rows.mappings()
    ]


def _read(text: str | None, serialization: str | None) -> object:
    serializer = DBOSPortableJSONSerializer()
    try:
        return serializer.deserialize(text) if serialization == serializer.name() else None
    except ValueError:
        return None


def forget_steps(client: DBOSClient, connection: Connection, run_id: str, positions: Sequence[int]) -> None:
    """Delete single steps in the caller's transaction. A rewind could only delete everything behind the first."""
    database = client._sys_db
    database._apply_caller_schema(connection)
    steps: Any = database.tables.operation_outputs
    connection.execute(delete(steps).where(steps.c.workflow_uuid == run_id, steps.c.function_id.in_(positions)))


def rewind(client: DBOSClient, connection: Connection, *, run_id: str, queue: str, version: str) -> bool:
    """Enqueue a workflow that has ended once more, in the caller's transaction. False: it has not ended.

    What `DBOSClient.rewind_workflow` does for a step past the end of the journal, where it deletes no step.
    """
    database = client._sys_db
    database._apply_caller_schema(connection)
    status: Any = database.tables.workflow_status
    output: Any = database.tables.workflow_output
    found = connection.execute(
        update(status)
        .where(status.c.workflow_uuid == run_id, status.c.status.in_(ENDED))
        .values(
            status="ENQUEUED",
            owner_xid=None,
            application_version=version,
            queue_name=queue,
            queue_partition_key=None,
            recovery_attempts=0,
            workflow_deadline_epoch_ms=None,
            deduplication_id=None,
            started_at_epoch_ms=None,
            updated_at=database._now_ms_sql(),
            completed_at=None,
            output=None,
            error=None,
        )
    )
    if not found.rowcount:
        return False
    connection.execute(delete(output).where(output.c.workflow_uuid == run_id))
    return True


def hang_bells(dbos: DBOS, bells: Mapping[str, threading.Event], slots: Mapping[str, int]) -> None:
    """Have DBOS look into a queue as soon as its bell is set, or one of its `slots` is free again. Before the launch.

    Each of its queue threads, which is named after the queue, waits for its next poll on the event that stops it.
    """
    dbos.background_thread_stop_events = _StopEvents(bells)
    dbos._active_workflows_set = _Slots(bells, slots)


class _StopEvents(list[threading.Event]):
    def __init__(self, bells: Mapping[str, threading.Event]) -> None:
        super().__init__()
        self._bells = bells

    def append(self, stop: threading.Event) -> None:
        wait_to_stop, stop_now = stop.wait, stop.set

        def wait(timeout: float | None = None) -> bool:
            bell = self._bells.get(threading.current_thread().name.removeprefix(_QUEUE_THREAD))
            if bell is None:
                return wait_to_stop(timeout)
            bell.wait(timeout)
            bell.clear()
            return stop.is_set()

        def set_() -> None:
            stop_now()
            for bell in self._bells.values():
                bell.set()

        stop.wait, stop.set = wait, set_  # type: ignore[method-assign]
        super().append(stop)


class _Slots(ActiveWorkflowById):
    """Rings when an execution has ended that had the last slot: what waits for it need not wait for the next poll."""

    def __init__(self, bells: Mapping[str, threading.Event], slots: Mapping[str, int]) -> None:
        super().__init__()
        self._bells = bells
        self._slots = slots

    def _remove(self, key: str, bucket: QueueBucket) -> None:
        queue = "" if bucket is None else bucket[0]
        was_full = queue in self._bells and self.count_for_queue(queue) >= self._slots[queue]
        super()._remove(key, bucket)
        if was_full:
            self._bells[queue].set()


async def finish(dbos: DBOS, patience_s: float) -> None:
    """Take nothing new; return once DBOS has recorded how each execution ended, or cancel them after `patience_s`.

    `DBOS.destroy` waits in whole seconds, and leaves executions behind that no longer own their workflow: they ask the
    database for its outcome, for ever if it is gone. Call it in the event loop that executes.
    """
    give_up_at = time.monotonic() + patience_s
    await asyncio.to_thread(_stop_queues, dbos, patience_s)
    executions = dbos._workflow_tasks
    while dbos._active_workflows_set.activeList() and executions and time.monotonic() < give_up_at:
        await asyncio.wait(set(executions), timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    left = set(executions)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=patience_s)


def _stop_queues(dbos: DBOS, patience_s: float) -> None:
    """When this returns, what was taken from a queue is a task in the event loop."""
    for stop in dbos.background_thread_stop_events:
        stop.set()
    for thread in threading.enumerate():
        # One that has not begun will end at once, and cannot be joined yet.
        if thread.name.startswith(_QUEUE_THREAD) and thread.is_alive():
            thread.join(patience_s)


def recover(executor_ids: Sequence[str]) -> None:
    """Put what dead executors had claimed back into its queue. Harmless if it was done; needs a launched DBOS."""
    DBOS._recover_pending_workflows(list(executor_ids))
