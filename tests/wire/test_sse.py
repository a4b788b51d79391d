"""Framing (WIRE 3): what bytes a reader gets, and what happens to the source when it leaves."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

import pytest
from starlette.types import Message, Scope

from signoff.domain import frame
from signoff.domain.frame import Frame, NumberedFrame
from signoff.http.sse import FRIENDLY, EventStreamResponse, blocks, native
from signoff.service.stream import Attached

LONG = timedelta(hours=1)


class Source:
    """Frames that a test hands out one by one; knows whether it was closed."""

    def __init__(self, *frames: Frame) -> None:
        self.queue: asyncio.Queue[Frame | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()
        for item in frames:
            self.queue.put_nowait(item)

    async def frames(self) -> AsyncGenerator[NumberedFrame, None]:
        seq = 0
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                seq += 1
                yield NumberedFrame(seq=seq, frame=item)
        finally:
            await asyncio.sleep(0)  # a real source unsubscribes with an await
            self.closed.set()

    def attached(self) -> Attached:
        return Attached(run_id="run_1", thread_id="thread_1", frames=self.frames())


def stream(source: Source, *, keep_alive: timedelta = LONG, conceal: bool = True) -> AsyncGenerator[str, None]:
    return blocks(source.attached(), dialect=native, keep_alive=keep_alive, conceal=conceal)


async def read_all(source: Source, *, conceal: bool = True) -> str:
    return "".join([block async for block in stream(source, conceal=conceal)])


async def test_a_whole_stream_byte_by_byte() -> None:
    source = Source(frame.step_start(), frame.text("Grüße\n\r\u2028"), frame.done())

    assert await read_all(source) == (
        'event: meta\ndata: {"runId":"run_1","threadId":"thread_1"}\n\n'
        'id: 1\ndata: {"kind":"step-start"}\n\n'
        'id: 2\ndata: {"kind":"text","text":"Gr\\u00fc\\u00dfe\\n\\r\\u2028"}\n\n'
        "event: done\ndata: {}\n\n"
    )


async def test_the_meta_block_does_not_wait_for_a_frame() -> None:
    async with aclosing(stream(Source())) as reader:
        assert (await anext(reader)).startswith("event: meta\n")


async def test_nothing_follows_the_end() -> None:
    text = await read_all(Source(frame.done(), frame.text("too late")))

    assert "too late" not in text


@pytest.mark.parametrize("code", ["replay_diverged", "model_no_output", "run_failed"])
async def test_production_hides_the_text_of_internal_failures(code: str) -> None:
    source = Source(frame.error(code=code, message="psycopg: password=hunter2"))

    text = await read_all(source)

    assert "hunter2" not in text
    assert text.endswith(f'event: error\ndata: {{"code":"{code}","message":"{FRIENDLY}"}}\n\n')


async def test_production_shows_failures_that_are_meant_for_people() -> None:
    text = await read_all(Source(frame.error(code="quota_exceeded", message="used up")))

    assert text.endswith('event: error\ndata: {"code":"quota_exceeded","message":"used up"}\n\n')


async def test_development_shows_the_real_text() -> None:
    text = await read_all(Source(frame.error(code="run_failed", message="KeyError: 'x'")), conceal=False)

    assert "KeyError" in text


async def test_a_silent_stream_is_kept_alive_and_loses_no_frame() -> None:
    source = Source()
    async with aclosing(stream(source, keep_alive=timedelta(milliseconds=1))) as reader:
        await anext(reader)
        assert [await anext(reader) for _ in range(3)] == [": keep-alive\n\n"] * 3
        source.queue.put_nowait(frame.text("after the silence"))
        rest = await anext(reader)
        while rest == ": keep-alive\n\n":
            rest = await anext(reader)

    assert rest == 'id: 1\ndata: {"kind":"text","text":"after the silence"}\n\n'


async def test_frames_that_stop_without_an_end_close_the_stream_without_one() -> None:
    source = Source(frame.text("half"))
    source.queue.put_nowait(None)

    text = await read_all(source)

    assert text.endswith('"half"}\n\n')
    assert "event: done" not in text


async def test_a_source_that_breaks_closes_the_stream_and_is_logged_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source(frame.text("half"))
    source.queue.put_nowait(RuntimeError("INSERT … hunter2"))

    text = await read_all(source)

    assert text.endswith('"half"}\n\n')
    assert "RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_reader_that_stops_closes_its_source() -> None:
    source = Source(frame.text("one"), frame.text("two"))
    async with aclosing(stream(source)) as reader:
        await anext(reader)
        await anext(reader)

    assert source.closed.is_set()


SCOPE: Scope = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def test_a_client_that_disconnects_while_the_run_is_parked_closes_the_source() -> None:
    """As uvicorn tells it (ASGI 2.3): a disconnect message while nothing is being sent."""
    source = Source(frame.text("one"))
    seen = asyncio.Event()

    async def receive() -> Message:
        await seen.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b'"one"' in message.get("body", b""):
            seen.set()

    response = EventStreamResponse(stream(source), run_id="run_1", thread_id="thread_1")
    await response(SCOPE, receive, send)

    assert source.closed.is_set()


async def test_a_client_that_disconnects_during_a_send_closes_the_source() -> None:
    """A slow client: the server blocks in `send`, outside of the generator, when the connection goes."""
    source = Source(frame.text("one"))
    sending = asyncio.Event()

    async def receive() -> Message:
        await sending.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b'"one"' in message.get("body", b""):
            sending.set()
            await asyncio.Event().wait()

    response = EventStreamResponse(stream(source), run_id="run_1", thread_id="thread_1")
    await response(SCOPE, receive, send)

    assert source.closed.is_set()


async def test_the_headers_of_a_stream() -> None:
    response = EventStreamResponse(stream(Source()), run_id="run_1", thread_id="thread_1")

    assert dict(response.headers) == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "x-agent-run-id": "run_1",
        "x-agent-thread-id": "thread_1",
    }


def test_every_data_line_is_one_line_of_json() -> None:
    odd: Frame = {"kind": "text", "text": "".join(map(chr, range(0x2100)))}
    text = native(NumberedFrame(seq=7, frame=odd))

    head, data, *rest = text.split("\n")
    assert (head, rest) == ("id: 7", ["", ""])
    assert json.loads(data.removeprefix("data: ")) == odd
