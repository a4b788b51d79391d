"""Everything that this adapter uses of DBOS beyond its public API, in one place.

DBOS is pinned to a minor version, and `tests/conformance/engine/test_dbos_internals.py` holds each of these to what
is needed of it, so that an upgrade which changes one fails there.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
from dbos._serialization import DefaultSerializer
from sqlalchemy import Connection, delete, update

from signoff.errors import SignoffError

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


def hang_bells(dbos: DBOS, bells: Mapping[str, threading.Event]) -> None:
    """Have DBOS look into a queue as soon as its bell is set. Before the launch.

    Each of its queue threads, which is named after the queue, waits for its next poll on the event that stops it.
    """
    dbos.background_thread_stop_events = _StopEvents(bells)


class _StopEvents(list[threading.Event]):
    def __init__(self, bells: Mapping[str, threading.Event]) -> None:
        super().__init__()
        self._bells = bells

    def append(self, stop: threading.Event) -> None:
        wait_to_stop, stop_now = stop.wait, stop.set

        def wait(timeout: float | None = None) -> bool:
            bell = self._bells.get(threading.current_thread().name.removeprefix("queue-worker-"))
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


def recover(executor_ids: Sequence[str]) -> None:
    """Put what dead executors had claimed back into its queue. Harmless if it was done; needs a launched DBOS."""
    DBOS._recover_pending_workflows(list(executor_ids))
