"""The queues that DBOS keeps for us, and how runs and steps get into them."""

from dataclasses import dataclass

from dbos import DBOSClient, EnqueueOptions

from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.dbos.internals import rewind
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.ports.store import Tx

#: The DBOS application: one for every signoff database, whatever the user's application is called.
APPLICATION = "signoff"

#: What DBOS takes for the version of the code: the format of our journal. A deploy does not change it (DBOS would
#: leave what was parked under another version alone); a body's own changes are the business of `Context.patched`.
VERSION = "signoff-journal-1"

RUN_WORKFLOW = "signoff.run"
TASK_WORKFLOW = "signoff.task"

#: The worker group that executes the bodies of runs.
RUNS = "runs"

#: How often a worker looks into each of its queues if nobody rings; three short queries a look.
POLL_S = 1.0


def bell(queue: str) -> str:
    """The stream whose subscribers wake up when something is put into the queue."""
    return f"queue:{queue}"


def task_workflow_id(run_id: str, position: int, dispatches: int) -> str:
    """The DBOS workflow of a step that is put for the `dispatches`-th time."""
    return f"task:{run_id}:{position}:{dispatches}"


@dataclass(frozen=True, slots=True)
class Queues:
    """Enqueues in the caller's transaction: a run, or a step, is in its queue exactly if its row says so.

    Whoever listens to the queue is woken by the commit.
    """

    client: DBOSClient

    def name(self, group: str, namespace: str) -> str:
        """The queue of a worker group. Namespaces share nothing."""
        return f"signoff.{group}" if not namespace else f"signoff.{group}@{namespace}"

    def put_run(self, tx: Tx, run_id: str, *, namespace: str) -> None:
        """Have a new run driven."""
        self._put(tx, RUN_WORKFLOW, run_id, RUNS, namespace, run_id)

    def put_task(self, tx: Tx, run_id: str, position: int, dispatches: int, *, group: str, namespace: str) -> None:
        """Have a step done; `dispatches` counts how often it was put."""
        workflow_id = task_workflow_id(run_id, position, dispatches)
        self._put(tx, TASK_WORKFLOW, workflow_id, group, namespace, run_id, position, dispatches)

    def put_again(self, tx: Tx, run_id: str, *, namespace: str) -> bool:
        """Have a run driven on that has parked: its DBOS workflow, ended for the time being, is rewound.

        False: DBOS does not know yet that the workflow has ended, or drives it.
        """
        queue = self.name(RUNS, namespace)
        if not rewind(self.client, connection_of(tx), run_id=run_id, queue=queue, version=VERSION):
            return False
        _ring(tx, queue)
        return True

    def _put(self, tx: Tx, workflow: str, workflow_id: str, group: str, namespace: str, *arguments: object) -> None:
        queue = self.name(group, namespace)
        options: EnqueueOptions = {
            "workflow_name": workflow,
            "queue_name": queue,
            "workflow_id": workflow_id,
            "app_version": VERSION,
        }
        self.client.enqueue_in_transaction(connection_of(tx), options, *arguments)
        _ring(tx, queue)


def _ring(tx: Tx, queue: str) -> None:
    assert isinstance(tx, SqlTx)
    tx.ring(bell(queue))
