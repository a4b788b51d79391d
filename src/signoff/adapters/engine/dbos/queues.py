"""The queues that DBOS keeps for us, and how runs and steps get into them."""

from dataclasses import dataclass

from dbos import DBOSClient, EnqueueOptions
from sqlalchemy import Connection

#: The DBOS application: one for every signoff database, whatever the user's application is called.
APPLICATION = "signoff"

#: What DBOS takes for the version of the code: the format of our journal. A deploy does not change it (DBOS would
#: leave what was parked under another version alone); a body's own changes are the business of `Context.patched`.
VERSION = "signoff-journal-1"

RUN_WORKFLOW = "signoff.run"
TASK_WORKFLOW = "signoff.task"

#: The worker group that executes the bodies of runs.
RUNS = "runs"

#: How often a worker looks into each of its queues; two short queries a look.
POLL_S = 0.2

#: No journal is that long: a rewind to here deletes nothing and enqueues the workflow again.
PAST_THE_END = 2**31 - 1


def task_workflow_id(run_id: str, position: int, dispatches: int) -> str:
    """The DBOS workflow of a step that is put for the `dispatches`-th time."""
    return f"task:{run_id}:{position}:{dispatches}"


@dataclass(frozen=True, slots=True)
class Queues:
    """Enqueues in the caller's transaction: a run, or a step, is in its queue exactly if its row exists."""

    client: DBOSClient

    def name(self, group: str, namespace: str) -> str:
        """The queue of a worker group. Namespaces share nothing."""
        return f"signoff.{group}" if not namespace else f"signoff.{group}@{namespace}"

    def put_run(self, connection: Connection, run_id: str, *, namespace: str) -> None:
        """Have a new run driven."""
        self._put(connection, RUN_WORKFLOW, run_id, RUNS, namespace, run_id)

    def put_task(
        self, connection: Connection, run_id: str, position: int, dispatches: int, *, group: str, namespace: str
    ) -> None:
        """Have a step done; `dispatches` counts how often it was put."""
        workflow_id = task_workflow_id(run_id, position, dispatches)
        self._put(connection, TASK_WORKFLOW, workflow_id, group, namespace, run_id, position, dispatches)

    def put_again(self, run_id: str, *, namespace: str) -> None:
        """Have a run driven on that has parked: its DBOS workflow, ended for the time being, is rewound. Blocks.

        Raises:
            dbos.error.DBOSException: DBOS does not know yet that the workflow has ended, or drives it.
        """
        self.client.rewind_workflow(
            run_id,
            start_step=PAST_THE_END,
            queue_name=self.name(RUNS, namespace),
            application_version=VERSION,
        )

    def _put(
        self, connection: Connection, workflow: str, workflow_id: str, group: str, namespace: str, *arguments: object
    ) -> None:
        options: EnqueueOptions = {
            "workflow_name": workflow,
            "queue_name": self.name(group, namespace),
            "workflow_id": workflow_id,
            "app_version": VERSION,
        }
        self.client.enqueue_in_transaction(connection, options, *arguments)
