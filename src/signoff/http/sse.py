"""Server-sent events as WIRE section 3 frames them: LF only, `meta` first, numbers on events, none on the end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeAlias

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Send

from signoff.domain.frame import DONE, ERROR, Frame, NumberedFrame
from signoff.domain.jsonvalue import Json, encode
from signoff.http.problems import log_unexpected
from signoff.service.stream import Attached

RUN_HEADER = "X-Agent-Run-Id"
THREAD_HEADER = "X-Agent-Thread-Id"

#: Codes whose text may hold internals (WIRE 4).
_CONCEALED = frozenset({"replay_diverged", "model_no_output", "run_failed"})
FRIENDLY = "The assistant could not finish this answer. Please try again."

_KEEP_ALIVE = ": keep-alive\n\n"

#: Writes the blocks of one frame that is not an end: a numbered one, and what a dialect adds to it.
Dialect: TypeAlias = Callable[[NumberedFrame], str]


def block(data: Json, *, event: str | None = None, number: int | None = None) -> str:
    """One block. JSON text is ASCII without line breaks, so one `data:` line holds it."""
    lines = ([f"event: {event}"] if event else []) + ([f"id: {number}"] if number is not None else [])
    return "\n".join([*lines, f"data: {encode(data)}", "", ""])


def native(numbered: NumberedFrame) -> str:
    """The frame as it is, under its number."""
    return block(numbered.frame, number=numbered.seq)


def ending(frame: Frame, *, conceal: bool) -> str | None:
    """The last block if `frame` ends the stream, else None. Without a number, or a cursor could hide the end."""
    match frame.get("kind"):
        case "done":
            return block({}, event=DONE)
        case "error":
            code = str(frame.get("code") or "run_failed")
            message = FRIENDLY if conceal and code in _CONCEALED else str(frame.get("message") or FRIENDLY)
            return block({"code": code, "message": message}, event=ERROR)
        case _:
            return None


async def blocks(
    attached: Attached, *, dialect: Dialect, keep_alive: timedelta, conceal: bool
) -> AsyncGenerator[str, None]:
    """Everything one reader gets, until the run ends or the frames stop coming.

    Frames that stop without an end (withdrawn under the reader's cursor, a database that is gone) close the
    stream without one: the reader attaches again, and learns there what became of the run.
    """
    yield block({"runId": attached.run_id, "threadId": attached.thread_id}, event="meta")
    coming: asyncio.Task[NumberedFrame | None] | None = None
    try:
        while True:
            coming = coming or asyncio.create_task(_next(attached.frames))
            await asyncio.wait({coming}, timeout=keep_alive.total_seconds())
            if not coming.done():
                yield _KEEP_ALIVE
                continue
            numbered, coming = coming.result(), None
            if numbered is None:
                return
            last = ending(numbered.frame, conceal=conceal)
            if last is not None:
                yield last
                return
            yield dialect(numbered)
    except Exception as error:  # noqa: BLE001  # the status is sent: all that is left is to close
        log_unexpected(f"the stream of run {attached.run_id!r}", error)
    finally:
        # Shielded: a server that cancels a reader goes on cancelling every await until it has returned.
        with anyio.CancelScope(shield=True):
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            if isinstance(attached.frames, AsyncGenerator):
                await attached.frames.aclose()


async def _next(frames: AsyncIterator[NumberedFrame]) -> NumberedFrame | None:
    return await anext(frames, None)


class EventStreamResponse(StreamingResponse):
    """A stream of blocks. A reader that leaves closes its own reading and nothing else."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[str, None], *, run_id: str, thread_id: str) -> None:
        headers = {
            "content-type": "text/event-stream",  # spelled out: Starlette would append a charset
            "cache-control": "no-cache, no-transform",
            "x-accel-buffering": "no",
            RUN_HEADER: run_id,
            THREAD_HEADER: thread_id,
        }
        super().__init__(content, headers=headers)
        self._blocks = content

    async def stream_response(self, send: Send) -> None:
        """Send the blocks; close their source also when the reader leaves between two of them."""
        async with aclosing(self._blocks):
            await super().stream_response(send)
