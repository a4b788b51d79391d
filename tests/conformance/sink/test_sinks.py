"""What every sink must do: frames that one replica commits come to a reader of another, whole and in order."""

import asyncio

from tests.conformance.sink.conftest import NewReplica


async def test_a_reader_elsewhere_sees_everything_in_order(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    await writer.say("a", "b")
    reader = other.reader()
    assert await reader.take(2) == ["a", "b"]

    following = asyncio.create_task(reader.rest())
    said = [f"{number}" for number in range(100)]
    for word in said:
        await writer.say(word)
    await writer.end()

    assert await following == [*said, "done"]
    assert reader.numbers == list(range(1, 104))


async def test_replicas_that_write_by_turns_make_one_stream(new_replica: NewReplica) -> None:
    first, second = await new_replica(), await new_replica()
    await first.begin()
    readers = [first.reader(), second.reader()]
    following = [asyncio.create_task(reader.rest()) for reader in readers]

    await asyncio.gather(*(replica.say(f"{n}", f"{n}") for n in range(30) for replica in (first, second)))
    await first.end()
    shown = await asyncio.gather(*following)

    assert shown[0] == shown[1]
    assert readers[0].numbers == readers[1].numbers == list(range(1, 122))


async def test_a_reader_that_is_cut_off_at_each_frame_misses_and_repeats_none(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()

    seen = []
    for number in range(12):
        await writer.say(f"{number}")
        # It attaches now here, now there, while the next frame may still be on its way.
        reader = (writer, other)[number % 2].reader(after=number)
        seen += await reader.take(1)
        await reader.leave()
    await writer.end()

    assert seen == [f"{number}" for number in range(12)]
    for after in range(13):
        assert await other.reader(after=after).rest() == [*seen[after:], "done"]


async def test_who_has_seen_withdrawn_frames_is_sent_away(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    await writer.say("kept")
    ahead, behind = other.reader(), other.reader()
    assert await behind.take(1) == ["kept"]
    await writer.say("lost", "lost too")
    assert await ahead.take(3) == ["kept", "lost", "lost too"]

    await writer.withdraw(2)
    await writer.say("again")
    await writer.end()

    assert await ahead.rest() == []
    # It was at the frame before them: whether it saw them depends on when it read. Never both them and the end.
    assert await behind.rest() in (["again", "done"], ["lost", "lost too"])
    assert await other.reader(after=1).rest() == ["again", "done"]


async def test_withdrawn_frames_never_come_back(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    # A reader from the beginning keeps whatever carries the frames busy with all of them.
    first = other.reader()
    await writer.say("kept")
    await writer.say("lost", "lost too")
    assert await first.take(3) == ["kept", "lost", "lost too"]
    await writer.withdraw(2)

    late = other.reader()
    assert await late.take(1) == ["kept"]
    following = asyncio.create_task(late.rest())
    await writer.say("again")
    await writer.end()

    assert await following == ["again", "done"]
    assert late.numbers == [1, 5, 6]
    assert await first.rest() == []


async def test_a_slow_reader_slows_nobody_and_loses_nothing(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    await writer.say("0")
    slow, quick = other.reader(), other.reader()
    assert await slow.take(1) == ["0"]
    following = asyncio.create_task(quick.rest())

    # More than anybody keeps for one reader.
    for number in range(1, 601):
        await writer.say(f"{number}", f"{number}")
    await writer.end()
    shown = await following

    assert len(shown) == 1202
    assert await slow.rest() == shown[1:]


async def test_a_crowd_of_readers_sees_the_same(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    crowd = [asyncio.create_task(other.reader().rest()) for _ in range(40)]
    leaving = other.reader()
    await writer.say("a")
    assert await leaving.take(1) == ["a"]
    await leaving.leave()

    for word in "bcdef":
        await writer.say(word)
    await writer.end()

    assert await asyncio.gather(*crowd) == [[*"abcdef", "done"]] * 40


async def test_the_reader_of_a_run_that_is_pruned_is_sent_away(new_replica: NewReplica) -> None:
    writer, other = await new_replica(), await new_replica()
    await writer.begin()
    await writer.say("a")
    reader = other.reader()
    assert await reader.take(1) == ["a"]

    await writer.end()
    await writer.store.transact("prune", lambda tx: tx.delete_run("run_1"))

    assert await reader.rest() in ([], ["done"])
    assert await other.reader(after=1).rest() == []
