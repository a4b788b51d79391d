"""The engine's rules for a run's row, where steps are executed in one process and runs in another."""

from collections.abc import Callable, Iterable

from sqlalchemy import Connection

from signoff.adapters.engine.core import runs
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.lifecycle import CANCELLED, Lifecycle
from signoff.adapters.engine.core.runs import Standing
from signoff.adapters.engine.core.wakeups import Woken
from signoff.adapters.engine.dbos import claims, tasks
from signoff.adapters.engine.dbos.queues import Queues
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx


def task_signal(position: int) -> str:
    """The name under which a step's outcome comes to its run."""
    return f"{claims.TASK_SIGNAL}{position}"


def is_task_signal(name: str) -> bool:
    """Whether this is how a step's outcome comes."""
    return name.startswith(claims.TASK_SIGNAL)


class DbosLifecycle(Lifecycle):
    """As `Lifecycle`; runs go into DBOS's queue in the same transaction.

    Those whose DBOS workflow has not ended yet, since they parked this moment, are announced after it.
    """

    queues: Callable[[Connection], Queues]

    def begin(self, tx: Tx, run: Woken) -> None:
        """See `Lifecycle`."""
        connection = connection_of(tx)
        namespace = claims.pending_in(connection, run.id) or ""
        self.queues(connection).put_run(tx, run.id, namespace=namespace)

    def announce(self, tx: Tx, woken: Iterable[Woken]) -> None:
        """See `Lifecycle`."""
        connection = connection_of(tx)
        for run in woken:
            namespace = claims.pending_in(connection, run.id)
            if namespace is None or not self.queues(connection).put_again(tx, run.id, namespace=namespace):
                super().announce(tx, [run])

    def is_executed(self, tx: Tx, run: Standing) -> bool:
        """See `Lifecycle`. A parked run of which a worker executes a step is executed."""
        return super().is_executed(tx, run) or tasks.any_started(connection_of(tx), run.id)

    def parked(self, tx: Tx, run_id: str) -> None:
        """See `Lifecycle`. A run with a step under way is not parked for people."""
        if not self._has_steps(tx, run_id):
            super().parked(tx, run_id)

    def go_on(self, tx: Tx, woken: Iterable[Woken]) -> None:
        """See `Lifecycle`."""
        for run in list(woken):
            if self._has_steps(tx, run.id):
                self.announce(tx, [run])
            else:
                super().go_on(tx, [run])

    def _has_steps(self, tx: Tx, run_id: str) -> bool:
        return any(map(is_task_signal, claims.waited_for(connection_of(tx), run_id)))

    def end_cancelled(self, tx: Tx, run_id: str) -> None:
        """End a run that is cancelling, once nothing of it is executed any more."""
        connection = connection_of(tx)
        run = runs.standing(connection, run_id)
        if run is None or run.status is not EngineStatus.CANCELLING:
            return
        if not claims.is_owned(connection, run_id) and not tasks.any_started(connection, run_id):
            self.end(tx, run, CANCELLED)
