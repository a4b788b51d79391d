"""Frames of a stream: numbered once, read from anywhere, withdrawn without a trace."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from signoff.domain.frame import NumberedFrame, done, text
from signoff.errors import StreamReset
from signoff.ports.store import Store, Tx


def emit(*words: str, stream: str = "s") -> Callable[[Tx], int]:
    return lambda tx: tx.emit(stream, [text(word) for word in words])


async def words(store: Store, after: int = 0, limit: int = 100, stream: str = "s") -> list[tuple[int, Any]]:
    frames = await store.read(lambda tx: tx.frames(stream, after=after, limit=limit))
    return [(numbered.seq, numbered.frame.get("text")) for numbered in frames]


async def test_frames_are_numbered_from_one_without_gaps(store: Store) -> None:
    assert await store.transact("none", emit()) == 0
    assert await store.transact("two", emit("a", "b")) == 2
    assert await store.transact("other", emit("x", stream="t")) == 1
    assert await store.transact("three", emit("c", "d", "e")) == 5
    assert await store.transact("none", emit()) == 5
    assert await store.transact("done", lambda tx: tx.emit("s", [done()])) == 6

    assert await words(store) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, None)]
    assert await words(store, stream="t") == [(1, "x")]
    assert await words(store, stream="unknown") == []
    assert await store.read(lambda tx: tx.frames("s", after=5, limit=9)) == [NumberedFrame(seq=6, frame=done())]


async def test_frames_are_read_from_inside_an_emit_and_up_to_a_limit(store: Store) -> None:
    await store.transact("a", emit("a", "b", "c"))
    await store.transact("d", emit("d", "e", "f"))

    assert await words(store, after=1, limit=3) == [(2, "b"), (3, "c"), (4, "d")]
    assert await words(store, after=3) == [(4, "d"), (5, "e"), (6, "f")]
    assert await words(store, after=6) == []
    assert await words(store, limit=1) == [(1, "a")]


async def test_emits_at_once_take_different_numbers(store: Store) -> None:
    numbers = await asyncio.gather(*(store.transact("emit", emit(f"{n}", f"{n}")) for n in range(20)))

    read = await words(store)
    assert [seq for seq, _ in read] == list(range(1, 41))
    for n, last in enumerate(numbers):
        assert read[last - 2 : last] == [(last - 1, f"{n}"), (last, f"{n}")]


async def test_a_failed_emit_takes_no_number(store: Store) -> None:
    def emit_and_fail(tx: Tx) -> None:
        emit("lost")(tx)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await store.transact("fails", emit_and_fail)

    assert await store.transact("emit", emit("a")) == 1
    assert await words(store) == [(1, "a")]


async def test_withdrawn_frames_are_gone_and_their_numbers_stay_taken(store: Store) -> None:
    await store.transact("kept", emit("a", "b"))
    await store.transact("lost", emit("c", "d", "e"))

    await store.transact("withdraw", lambda tx: tx.withdraw("s", from_seq=3))
    after = await store.transact("again", emit("f"))

    assert after == 7
    assert await words(store) == [(1, "a"), (2, "b"), (7, "f")]


async def test_withdrawing_cuts_an_emit_that_lies_across(store: Store) -> None:
    await store.transact("both", emit("a", "b", "c"))

    await store.transact("withdraw", lambda tx: tx.withdraw("s", from_seq=2))

    assert await words(store) == [(1, "a")]
    assert await store.transact("next", emit("d")) == 5
    assert await words(store, after=1) == [(5, "d")]


async def test_a_cursor_in_withdrawn_frames_is_told_to_start_afresh(store: Store) -> None:
    await store.transact("emit", emit("a", "b", "c", "d"))
    await store.transact("withdraw", lambda tx: tx.withdraw("s", from_seq=3))
    await store.transact("more", emit("e"))

    for after in (3, 4):
        with pytest.raises(StreamReset) as caught:
            await words(store, after=after)
        assert caught.value.stream_id == "s"
    for after in (0, 1, 2):
        assert (await words(store, after=after))[-1] == (6, "e")
    # 5 is the number of the `withdrawn` frame itself: whoever has it has heard.
    assert await words(store, after=5) == [(6, "e")]


async def test_the_reset_range_begins_at_the_first_frame_that_was_there(store: Store) -> None:
    await store.transact("emit", emit("a", "b"))
    await store.transact("first", lambda tx: tx.withdraw("s", from_seq=2))
    await store.transact("again", emit("c", "d"))

    await store.transact("second", lambda tx: tx.withdraw("s", from_seq=3))

    with pytest.raises(StreamReset):
        await words(store, after=4)
    assert await words(store, after=3) == []
    assert await words(store) == [(1, "a")]


async def test_withdrawing_nothing_changes_nothing(store: Store) -> None:
    await store.transact("emit", emit("a"))

    await store.transact("later", lambda tx: tx.withdraw("s", from_seq=2))
    await store.transact("unknown", lambda tx: tx.withdraw("t", from_seq=1))

    assert await store.transact("next", emit("b")) == 2
    assert await words(store, after=1) == [(2, "b")]
    assert await store.transact("unknown", emit(stream="t")) == 0


async def test_readers_are_woken_after_the_commit_that_emitted(store: Store) -> None:
    woken = asyncio.Event()
    end = store.subscribe("s", woken.set)
    # Other databases may wake a new reader once for no cause.
    await store.transact("before", emit("a"))
    await woken.wait()

    woken.clear()
    await store.transact("emit", emit("b"))
    await asyncio.wait_for(woken.wait(), 5)
    assert await words(store, after=1) == [(2, "b")]

    woken.clear()
    await store.transact("withdraw", lambda tx: tx.withdraw("s", from_seq=2))
    await asyncio.wait_for(woken.wait(), 5)

    end()
    end()


async def test_who_has_left_is_not_woken_and_harms_nobody(store: Store) -> None:
    woken: list[str] = []
    heard = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("this reader is broken")

    end_first = store.subscribe("s", lambda: woken.append("first"))
    end_second = store.subscribe("s", fail)
    end_third = store.subscribe("s", heard.set)
    end_first()

    await store.transact("emit", emit("a"))
    await asyncio.wait_for(heard.wait(), 5)

    assert woken == []
    end_second()
    end_third()


async def test_a_frame_holds_whatever_json_holds(store: Store) -> None:
    frame: dict[str, Any] = {"kind": "tool-output", "id": "c", "output": {"a": [None, True, 1.5, "\x00\ud800é"]}}

    await store.transact("emit", lambda tx: tx.emit("s", [frame]))

    assert await store.read(lambda tx: tx.frames("s", after=0, limit=1)) == [NumberedFrame(seq=1, frame=frame)]
