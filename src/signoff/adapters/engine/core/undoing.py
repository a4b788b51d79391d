"""A cancelled run is undone: what its replayed body said with `on_undo` runs, newest first, at positions -1, -2, …"""

import asyncio
import logging
from dataclasses import replace

from signoff.adapters.engine.core.control import Released
from signoff.adapters.engine.core.execution import Execution
from signoff.adapters.engine.core.journal import Kind
from signoff.domain.jsonvalue import Json
from signoff.errors import ContinueAsNew, ControlFlow, ReplayDiverged

logger = logging.getLogger(__name__)


async def undo(execution: Execution) -> None:
    """Run the undos that the journal has no outcome of. What fails is journaled, and the others go on.

    In the order of the positions at which they were said: a replay need not meet parallel branches in the order
    in which they once ran.

    Raises:
        ControlFlow: this process has to stop; whoever claims the run next goes on from the journal.
    """
    execution.unread = {position for position in execution.entries if position < 0}
    oldest_first = sorted(execution.undos, key=lambda step: step.before)
    for number, step in enumerate(reversed(oldest_first), start=1):
        entry = execution.read(-number, Kind.DISPATCH, step.name)
        # None begins before what the ones ahead of it came to is durable: those are not to be repeated.
        retry = replace(step.retry, marked_first=True)
        try:
            execution.raise_if_stopped()
            await execution.services.dispatch(execution, -number, entry, step.name, step.task, retry)
        except (Exception, ControlFlow) as error:
            if error is execution.stop:
                raise
            logger.exception("run %r is undone further, although %r failed", execution.run_id, step.name)
    execution.finish()


def why_not_undone(execution: Execution, body: "asyncio.Task[Json]") -> ControlFlow | None:
    """What keeps the run from being undone now that its body was replayed; None if nothing does.

    How the body ended is of no account: the run was cancelled.
    """
    error = None if body.cancelled() else body.exception()
    if execution.stop is not None:
        return execution.stop
    if execution.aborted:
        return Released(f"run {execution.run_id!r} is released")
    returned = not body.cancelled() and (error is None or isinstance(error, ContinueAsNew))
    if returned and not execution.cut:
        try:
            execution.finish()
        except ReplayDiverged as diverged:
            return diverged
    return None
