"""Turns on the stage, as whoever asks and decides sees them, and what the database holds of them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import select

from signoff import Actor, Signoff
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.stores.sql.schema import withdrawals
from signoff.domain.frame import Frame, NumberedFrame
from signoff.domain.thread import Message
from signoff.ports.engine import EngineRun, EngineStatus, JournalEntry
from signoff.ports.store import Tx
from signoff.service.decide import DecisionRequest, Verb
from signoff.service.send import SendRequest
from tests.processes.stage_app import FIRST_WORDS, LAST_WORDS, PATIENCE_S

ANA = Actor(id="ana")

#: How often a database is asked that nobody tells of.
LOOK_S = 0.05

_ENDS = ("done", "error")


async def send(web: Signoff, message: str) -> str:
    """Ask; the run's id."""
    return (await web.send(ANA, SendRequest(message=message))).run_id


async def card(web: Signoff, run_id: str, *, in_doubt: bool = False) -> Frame:
    """Wait for the run's card, or for the one that asks what became of its action."""

    def is_it(frame: Frame) -> bool:
        return frame["kind"] == "approval-requested" and ("inDoubt" in frame) is in_doubt

    return (await _stream(web, run_id, is_it))[-1].frame


async def parked(web: Signoff, run_id: str) -> Frame:
    """As `card`, and the run has left its worker, which is a moment later."""
    shown = await card(web, run_id)
    async with asyncio.timeout(PATIENCE_S):
        while (await engine_run(web, run_id)).status is not EngineStatus.SUSPENDED:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return shown


async def decide(web: Signoff, shown: Frame, verb: Verb = Verb.APPROVE, **answer: Any) -> None:
    """Answer the card that was shown; approve, unless told otherwise."""
    request = DecisionRequest(call_id=str(shown["id"]), digest=str(shown["digest"]), verb=verb, **answer)
    await web.decide(ANA, request)


async def approve(web: Signoff, run_id: str) -> None:
    """Wait for the run's card, and approve."""
    await decide(web, await card(web, run_id))


async def heard(web: Signoff, run_id: str, *, after: int = 0) -> int:
    """Wait for the first words that are on the stream behind a number; their number."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for numbered in await web.store.read(lambda tx: tx.frames(run_id, after=0, limit=100)):
                if numbered.frame["kind"] == "text" and numbered.seq > after:
                    return numbered.seq
            await asyncio.sleep(LOOK_S)


async def ended(web: Signoff, run_id: str) -> list[Frame]:
    """Wait for the end of the run; its whole stream, as a reader sees it that comes now."""
    return [numbered.frame for numbered in await _stream(web, run_id, lambda frame: frame["kind"] in _ENDS)]


async def end_well(web: Signoff, run_id: str) -> list[Frame]:
    """As `ended`, and it is no error."""
    found = await ended(web, run_id)
    assert found[-1]["kind"] == "done", found[-1]
    return found


def text_of(stream: Sequence[Frame]) -> str:
    """What was said."""
    return "".join(str(frame["text"]) for frame in stream if frame["kind"] == "text")


def cards_of(stream: Sequence[Frame]) -> int:
    """How many cards were shown."""
    return sum(frame["kind"] == "approval-requested" for frame in stream)


async def _stream(web: Signoff, run_id: str, is_last: Callable[[Frame], bool]) -> list[NumberedFrame]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            seen: list[NumberedFrame] = []
            attached = await web.attach(ANA, run_id, even_ended=True)
            async for numbered in attached.frames:
                seen.append(numbered)
                if is_last(numbered.frame):
                    return seen
            # Some of what was seen has been withdrawn: attach afresh.
            assert not seen or seen[-1].frame["kind"] not in _ENDS, seen[-1].frame


# --- what the database holds ----------------------------------------------------------------------------------


async def engine_run(web: Signoff, run_id: str) -> EngineRun:
    """The run as the engine shows it."""
    engine = web.engine
    assert engine is not None
    run = await web.store.read(lambda tx: engine.get(tx, run_id))
    assert run is not None
    return run


async def left(web: Signoff, run_id: str) -> EngineRun:
    """Wait until the engine has done with the run, which is a moment after its stream has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while not (run := await engine_run(web, run_id)).status.is_terminal:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return run


async def journal(web: Signoff, run_id: str) -> list[JournalEntry]:
    """The run's checkpoints."""
    engine = web.engine
    assert engine is not None
    return await web.store.read(lambda tx: engine.history(tx, run_id))


async def messages(web: Signoff, run_id: str) -> list[Message]:
    """The conversation of the run."""

    def look(tx: Tx) -> list[Message]:
        run = tx.run(run_id)
        assert run is not None
        return tx.messages_of(run.thread_id)

    return await web.store.read(look)


def rows(url: str, query: str, *parameters: object) -> list[dict[str, Any]]:
    """Rows of the database."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(query.encode(), parameters).fetchall()


async def until_row(url: str, query: str, *parameters: object) -> dict[str, Any]:
    """Wait until the query finds a row."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await asyncio.to_thread(rows, url, query, *parameters)):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    return found[0]


def withdrawn(tx: Tx, stream_id: str) -> set[int]:
    """The numbers of frames that a lost attempt had shown."""
    ranges = select(withdrawals.c.from_seq, withdrawals.c.seq).where(withdrawals.c.stream_id == stream_id)
    return {number for first, last in connection_of(tx).execute(ranges) for number in range(first, last + 1)}


def missing(tx: Tx, stream_id: str) -> list[int]:
    """Numbers of a stream that are neither a frame's nor were withdrawn."""
    there = {numbered.seq for numbered in tx.frames(stream_id, after=0, limit=10_000)} | withdrawn(tx, stream_id)
    return sorted(set(range(1, tx.emit(stream_id, []) + 1)) - there)


# --- a turn that went well ------------------------------------------------------------------------------


async def assert_well(web: Signoff, run_id: str, *, said: str = FIRST_WORDS + LAST_WORDS) -> None:
    """The run has ended, its stream has no gap, and everything was said and journaled once."""
    stream = await end_well(web, run_id)
    assert text_of(stream) == said
    assert "".join(message.content for message in (await messages(web, run_id))[1:]) == said
    assert await web.store.read(lambda tx: missing(tx, run_id)) == []
    assert (await left(web, run_id)).status is EngineStatus.COMPLETED
    entries = await journal(web, run_id)
    positions, names = [entry.position for entry in entries], [(entry.kind, entry.name) for entry in entries]
    assert positions == sorted(set(positions))
    assert len(names) == len(set(names)), names
