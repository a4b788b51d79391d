"""Read a run's live stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from signoff.domain.actor import Actor
from signoff.domain.frame import DONE, ERROR, NumberedFrame, done
from signoff.domain.run import Run
from signoff.errors import NotFound, StreamReset
from signoff.ports.store import Tx
from signoff.service.deps import Deps
from signoff.service.owned import owned_run

PAGE = 500


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

    def look(tx: Tx) -> Run:
        run = owned_run(tx, actor, run_id)
        if run.status.is_terminal and not even_ended:
            raise NotFound("active run", run_id)
        tx.frames(run.stream_id, after=after, limit=1)  # raises if the cursor was withdrawn
        return run

    run = await deps.store.read(look)
    return Attached(run_id=run.id, thread_id=run.thread_id, frames=_follow(deps, run, after))


async def _follow(deps: Deps, run: Run, after: int) -> AsyncIterator[NumberedFrame]:
    """Read what is there, then wait to be woken: no reader polls, and a slow one keeps nobody waiting.

    Ends without a terminal frame when the reader has seen frames that were withdrawn since: it attaches afresh.
    """
    woken = asyncio.Event()
    unsubscribe = deps.store.subscribe(run.stream_id, woken.set)
    cursor = after
    try:
        while True:
            woken.clear()
            try:
                page, ended = await deps.store.read(partial(_page, run=run, after=cursor))
            except StreamReset:
                return
            for numbered in page:
                cursor = numbered.seq
                yield numbered
                if numbered.frame["kind"] in (DONE, ERROR):
                    return
            if page:
                continue
            if ended:
                # The frames of a run that ended long ago are pruned; its reader still needs an end.
                yield NumberedFrame(seq=cursor + 1, frame=done())
                return
            await woken.wait()
    finally:
        unsubscribe()


def _page(tx: Tx, *, run: Run, after: int) -> tuple[list[NumberedFrame], bool]:
    page = tx.frames(run.stream_id, after=after, limit=PAGE)
    row = None if page else tx.run(run.id)
    return page, row is not None and row.status.is_terminal
