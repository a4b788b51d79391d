"""Cases 8: the stream."""

import asyncio
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from signoff.domain.call import CallStatus
from signoff.domain.frame import NumberedFrame
from signoff.errors import IdempotencyMismatch, NotFound
from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx
from signoff.service.send import Started
from signoff.testing.outside import Bank
from signoff.testing.scripted import ask_for, turn, wait_for
from signoff.testing.world import ANA, Script, World
from tests.cases.conftest import DATABASE, NewWorld
from tests.cases.desk import Archive, desk, refund_tool
from tests.cases.faults import LosingStore

ONE_REFUND: Script = [
    turn("I will refund it. ", ask_for("refund", {"order": "A1"})),
    "The refund is on its way, it takes a day or two.",
]


async def first_frames(world: World, run: Started, count: int, *, after: int = 0) -> list[NumberedFrame]:
    """What a client sees that leaves after `count` frames."""
    attached = await world.app.attach(ANA, run.run_id, after=after)
    seen: list[NumberedFrame] = []
    async with aclosing(attached.frames) as frames:  # it is a generator
        async for frame in frames:
            seen.append(frame)
            if len(seen) == count:
                break
    return seen


async def test_c46_whoever_comes_later_sees_the_open_card_once(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    so_far = await world.frames(run)

    again = await first_frames(world, run, len(so_far))
    assert again == so_far
    assert [frame.frame.get("id") for frame in again if frame.frame["kind"] == "approval-requested"] == [card.id]

    # Behind the last frame nothing is repeated; the thread has the card.
    behind = asyncio.ensure_future(world.watch(run, after=so_far[-1].seq))
    view = await world.thread(run)
    calls = [call for calls in view.calls.values() for call in calls]
    assert [(call.id, call.status) for call in calls] == [(card.id, CallStatus.PENDING)]
    await world.approve(card)
    rest = await behind
    assert rest[0].seq == so_far[-1].seq + 1
    assert "approval-requested" not in [frame.frame["kind"] for frame in rest]


async def test_c46_a_new_process_shows_the_open_card_once(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)
    so_far = await world.frames(run)

    await world.restart()
    again = await first_frames(world, run, len(so_far))

    assert again == so_far
    assert [frame.frame["kind"] for frame in again].count("approval-requested") == 1
    await world.approve(card)
    await world.completed(run)


async def test_c47_a_client_that_reconnects_at_each_frame_misses_and_repeats_none(
    new_world: NewWorld, bank: Bank
) -> None:
    world = await new_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    seen: list[NumberedFrame] = []
    while not seen or seen[-1].frame["kind"] != "done":
        (frame,) = await asyncio.wait_for(next_frame(world, run, after=seen[-1].seq if seen else 0), 20)
        seen.append(frame)
        if frame.frame["kind"] == "approval-requested":
            await world.approve(await world.card(run))

    whole = await world.watch(run)
    assert seen == whole
    for at, frame in enumerate(whole[:-1]):
        assert await world.watch(run, after=frame.seq) == whole[at + 1 :]
    assert text(whole) == "I will refund it. The refund is on its way, it takes a day or two."


async def next_frame(world: World, run: Started, *, after: int) -> list[NumberedFrame]:
    """Connect, read one frame, and drop the connection."""
    attached = await world.app.attach(ANA, run.run_id, after=after, even_ended=True)
    async with aclosing(attached.frames) as frames:  # it is a generator
        async for frame in frames:
            return [frame]
    raise AssertionError("the stream ended without an end")


def text(frames: list[NumberedFrame]) -> str:
    """What a client has written down."""
    return "".join(str(frame.frame["text"]) for frame in frames if frame.frame["kind"] == "text")


async def test_c47_numbers_go_on_over_a_kill(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)
    before = await world.frames(run)

    await world.restart()
    await world.approve(card)
    after = await world.watch(run, after=before[-1].seq)

    assert [frame.seq for frame in [*before, *after]] == list(range(1, len(before) + len(after) + 1))
    assert text([*before, *after]) == "I will refund it. The refund is on its way, it takes a day or two."


@pytest.mark.parametrize("lost", ["dispatch llm:0", "dispatch llm:0 done"])
async def test_the_attempt_that_counts_is_the_one_that_is_heard(tmp_path: Path, lost: str) -> None:
    """A busy store has lost the mark or the result of an attempt, but not its text: the turn asks again."""
    url, answers = f"sqlite:///{tmp_path / DATABASE}", iter(["One two three.", "Four five six."])
    world = World(
        lambda changed: LosingStore(url, changed=changed, loses=lost),
        durable="strict",
        agents=[desk()],
        script=lambda _prompt: next(answers),
    )
    engine = (await world.start()).engine
    assert engine is not None
    run = await world.send()

    def is_let_go(tx: Tx) -> bool | None:
        row = engine.get(tx, run.run_id)
        assert row is not None
        return row.status.is_terminal or (row.status is EngineStatus.PENDING and row.fence > 0) or None

    await world.until(is_let_go, "the run to end, or to be let go")
    world.clock.advance(timedelta(seconds=2))
    await world.completed(run)
    heard = await world.frames(run)
    said = (await world.thread(run)).messages[-1].content
    await world.close()

    assert [frame.frame["kind"] for frame in heard] == ["title", "step-start", "text", "text", "step-finish", "done"]
    assert text(heard) == said


async def test_c48_a_reader_that_leaves_stops_nothing(new_world: NewWorld) -> None:
    speaks = asyncio.Event()
    world = await new_world(script=[turn("One two ", wait_for(speaks), "three four.")])
    run = await world.send()
    await first_frames(world, run, 2)

    late = asyncio.ensure_future(world.watch(run))
    speaks.set()
    await world.completed(run)

    assert text(await late) == "One two three four."
    with pytest.raises(NotFound):
        await world.app.attach(ANA, run.run_id)
    assert [message.content for message in (await world.thread(run)).messages] == ["Go on.", "One two three four."]


async def test_c50_one_key_is_one_run(any_world: NewWorld) -> None:
    archive = Archive()
    world = await any_world(archive.tool, script=[ask_for("get_order", {"order": "A1"}), "Done."])

    at_once = await asyncio.gather(*(world.send("Look.", key="k1") for _ in range(5)))
    await world.completed(at_once[0])
    later = await world.send("Look.", key="k1")

    assert {started.run_id for started in [*at_once, later]} == {later.run_id}
    assert [started.repeated for started in at_once].count(False) == 1
    assert later.repeated
    assert archive.reads == 1
    assert len((await world.thread(later)).messages) == 3
    with pytest.raises(IdempotencyMismatch):
        await world.send("Look again.", key="k1")
