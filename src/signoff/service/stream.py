"""Read a run's live stream."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from signoff.domain.actor import Actor
from signoff.domain.frame import NumberedFrame
from signoff.service.deps import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A stream to read. `frames` ends after a `done` or `error` frame; closing it only ends the reading."""

    run_id: str
    thread_id: str
    frames: AsyncIterator[NumberedFrame]


async def attach(deps: Deps, actor: Actor, run_id: str, *, after: int = 0, even_ended: bool = False) -> Attached:
    """Frames numbered above `after`, then what follows.

    `even_ended` serves a run that has ended as well (for the request that started it).

    Raises:
        NotFound: unknown, or ended without `even_ended`.
        Forbidden: somebody else's run.
        StreamReset: `after` lies in withdrawn frames.
    """
    raise NotImplementedError
