"""Stop a run."""

from signoff.domain.actor import Actor
from signoff.errors import NotFound
from signoff.ports.store import Tx
from signoff.service.deps import Deps
from signoff.service.owned import owned_run


async def cancel(deps: Deps, actor: Actor, run_id: str) -> None:
    """Cancel the run and its linked children; returns once that is recorded.

    Raises:
        NotFound: unknown or ended.
        Forbidden: somebody else's run.
    """

    def write(tx: Tx) -> None:
        run = owned_run(tx, actor, run_id)
        if run.status.is_terminal or not deps.runner.cancel(tx, run_id):
            raise NotFound("active run", run_id)

    await deps.store.transact("cancel", write)
