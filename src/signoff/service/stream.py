"""Read a run's live stream."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial

from signoff.domain.actor import Actor
from signoff.domain.frame import DONE, ERROR, NumberedFrame, done
from signoff.domain.run import Run
from signoff.errors import NotFound, StreamReset
from signoff.ports.sink import Sink
from signoff.ports.store import Store, Tx
from signoff.service.deps import Deps
from signoff.service.owned import owned_run

PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A stream to read. `frames` ends after a `done` or `error` frame; closing it only ends the reading."""

    run_id: str
    thread_id: str
    frames: AsyncGenerator[NumberedFrame, None]


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
    frames = follow(deps.store, deps.sink, run, after=after)
    return Attached(run_id=run.id, thread_id=run.thread_id, frames=frames)


async def follow(store: Store, sink: Sink, run: Run, *, after: int) -> AsyncGenerator[NumberedFrame, None]:
    """Frames above `after`: what is there, then what the sink carries. Nobody polls, and a slow reader slows nobody.

    Ends without a terminal frame when the reader has seen frames that were withdrawn since, or the run was pruned:
    it attaches afresh.
    """
    follower = sink.follow(run.stream_id)
    try:
        while True:
            try:
                found = await store.read(partial(_look, run=run, after=after))
            except StreamReset:
                return
            for numbered in found.frames:
                yield numbered
                if _is_end(numbered):
                    return
            after = max(after, found.position)
            if found.ended:
                # A sub-agent's run has no end of its own on its parent's stream; its reader still needs one.
                yield NumberedFrame(seq=after + 1, frame=done())
                return
            while found.is_all and (carried := await follower.behind(after)):
                for numbered in carried:
                    yield numbered
                    if _is_end(numbered):
                        return
                after = carried[-1].seq
    finally:
        follower.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A page of a stream. `is_all`: there was nothing behind it, `position` is the stream's last number then.

    `ended`: nothing will follow, and the page has no terminal frame.
    """

    frames: list[NumberedFrame]
    position: int
    is_all: bool
    ended: bool = False


def _look(tx: Tx, *, run: Run, after: int) -> _Found:
    page = tx.frames(run.stream_id, after=after, limit=PAGE)
    if len(page) == PAGE:
        return _Found(frames=page, position=page[-1].seq, is_all=False)
    row = tx.run(run.id)
    if row is None:  # pruned, and its frames with it
        raise StreamReset(run.stream_id)
    # Emitting nothing tells the last number, which belongs to no frame after a withdrawal.
    last = tx.emit(run.stream_id, [])
    return _Found(frames=page, position=last, is_all=True, ended=row.status.is_terminal)


def _is_end(numbered: NumberedFrame) -> bool:
    return numbered.frame["kind"] in (DONE, ERROR)
