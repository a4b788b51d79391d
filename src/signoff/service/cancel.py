"""Stop a run."""

from signoff.domain.actor import Actor
from signoff.service.deps import Deps


async def cancel(deps: Deps, actor: Actor, run_id: str) -> None:
    """Cancel the run and its linked children; returns once that is recorded.

    Raises:
        NotFound: unknown or ended.
        Forbidden: somebody else's run.
    """
    raise NotImplementedError
