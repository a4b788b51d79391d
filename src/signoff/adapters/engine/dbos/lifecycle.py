"""The engine's rules for a run's row, where steps are executed in one process and runs in another."""

from collections.abc import Callable

from signoff.adapters.engine.dbos import claims, tasks
from signoff.adapters.engine.dbos.queues import Queues
from signoff.adapters.engine.embedded import runs
from signoff.adapters.engine.embedded.connection import connection_of
from signoff.adapters.engine.embedded.lifecycle import CANCELLED, Lifecycle
from signoff.adapters.engine.embedded.runs import Standing, Woken
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx


def task_signal(position: int) -> str:
    """The name under which a step's outcome comes to its run."""
    return f"{claims.TASK_SIGNAL}{position}"


def is_task_signal(name: str) -> bool:
    """Whether this is how a step's outcome comes."""
    return name.startswith(claims.TASK_SIGNAL)


class DbosLifecycle(Lifecycle):
    """As `Lifecycle`; new runs go into DBOS's queue in the same transaction, parked ones after it."""

    queues: Callable[[], Queues]

    def begin(self, tx: Tx, run: Woken) -> None:
        """See `Lifecycle`."""
        connection = connection_of(tx)
        namespace = claims.pending_in(connection, run.id) or ""
        self.queues().put_run(connection, run.id, namespace=namespace)

    def is_executed(self, tx: Tx, run: Standing) -> bool:
        """See `Lifecycle`. A parked run of which a worker executes a step is executed."""
        return super().is_executed(tx, run) or tasks.any_started(connection_of(tx), run.id)

    def parked(self, tx: Tx, run_id: str) -> None:
        """See `Lifecycle`. A run that only waits for its own steps does not wait for people."""
        if any(not is_task_signal(name) for name in claims.waited_for(connection_of(tx), run_id)):
            super().parked(tx, run_id)

    def end_cancelled(self, tx: Tx, run_id: str) -> None:
        """End a run that is cancelling, once nothing of it is executed any more."""
        connection = connection_of(tx)
        run = runs.standing(connection, run_id)
        if run is None or run.status is not EngineStatus.CANCELLING:
            return
        if not claims.is_owned(connection, run_id) and not tasks.any_started(connection, run_id):
            self.end(tx, run, CANCELLED)
