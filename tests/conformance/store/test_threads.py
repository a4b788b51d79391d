"""Conversations: what every store keeps, claims and forgets."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from signoff.domain.thread import Message, Role
from signoff.ports.store import Store, Tx
from tests.conformance.store.rows import a_call, a_message, a_thread, a_vote, at, insert


async def test_thread_comes_back_as_it_was(store: Store) -> None:
    full = a_thread(transient=True, active_run_id="run_1", deleted_at=at(9))
    bare = a_thread("thread_2", default_agent=None, model=None, persona=None, last_message_preview=None)

    await insert(store, full, bare)

    assert await store.read(lambda tx: tx.thread("thread_1")) == full
    assert await store.read(lambda tx: tx.thread("thread_2")) == bare
    assert await store.read(lambda tx: tx.thread("thread_3")) is None


async def test_second_thread_of_an_id_is_refused_and_the_first_stays(store: Store) -> None:
    await insert(store, a_thread())

    with pytest.raises(ValueError, match="thread_1"):
        await store.transact("again", lambda tx: tx.insert_thread(a_thread(title="other")))

    thread = await store.read(lambda tx: tx.thread("thread_1"))
    assert thread == a_thread()


async def test_a_refused_insert_that_is_caught_does_not_spoil_its_transaction(store: Store) -> None:
    await insert(store, a_thread())

    def insert_both(tx: Tx) -> None:
        with pytest.raises(ValueError, match="thread_1"):
            tx.insert_thread(a_thread())
        tx.insert_thread(a_thread("thread_2"))

    await store.transact("both", insert_both)

    assert await store.read(lambda tx: tx.thread("thread_2")) == a_thread("thread_2")


async def test_own_threads_are_listed_last_updated_first(store: Store) -> None:
    threads = [
        a_thread("old", updated_at=at(1)),
        a_thread("new", updated_at=at(3)),
        a_thread("same-a", updated_at=at(2)),
        a_thread("same-b", updated_at=at(2)),
        a_thread("transient", transient=True),
        a_thread("deleted", deleted_at=at(5)),
        a_thread("of-another", actor_id="bo"),
        a_thread("of-another-tenant", tenant="other"),
    ]

    await insert(store, *threads)

    listed = await store.read(lambda tx: tx.threads_of(actor_id="ana", tenant="acme"))
    assert [thread.id for thread in listed] == ["new", "same-b", "same-a", "old"]


async def test_changes_write_what_is_named_and_none_clears(store: Store) -> None:
    await insert(store, a_thread())

    await store.transact("change", lambda tx: tx.change_thread("thread_1", title="New", persona=None, updated_at=at(7)))
    await store.transact("nothing", lambda tx: tx.change_thread("thread_1"))
    await store.transact("nobody", lambda tx: tx.change_thread("thread_9", title="New"))

    thread = await store.read(lambda tx: tx.thread("thread_1"))
    assert thread == replace(a_thread(), title="New", persona=None, updated_at=at(7))


async def test_twenty_claims_of_one_thread_give_it_to_one_run(store: Store) -> None:
    await insert(store, a_thread())

    def claim(run_id: str) -> Callable[[Tx], bool]:
        return lambda tx: tx.claim_thread("thread_1", run_id)

    claims = await asyncio.gather(*(store.transact("claim", claim(f"run_{n}")) for n in range(20)))

    assert sum(claims) == 1
    thread = await store.read(lambda tx: tx.thread("thread_1"))
    assert thread is not None
    assert thread.active_run_id == f"run_{claims.index(True)}"


async def test_only_the_run_that_holds_a_thread_releases_it(store: Store) -> None:
    await insert(store, a_thread(active_run_id="run_1"))

    await store.transact("other", lambda tx: tx.release_thread("thread_1", "run_2"))
    held = await store.read(lambda tx: tx.thread("thread_1"))
    await store.transact("own", lambda tx: tx.release_thread("thread_1", "run_1"))
    free = await store.read(lambda tx: tx.thread("thread_1"))

    assert held is not None
    assert held.active_run_id == "run_1"
    assert free is not None
    assert free.active_run_id is None
    assert await store.transact("claim", lambda tx: tx.claim_thread("thread_1", "run_2"))
    assert not await store.transact("unknown", lambda tx: tx.claim_thread("thread_9", "run_2"))


async def test_message_comes_back_as_it_was_with_a_rising_seq(store: Store) -> None:
    bare = a_message(
        "message_2", role=Role.USER, run_id=None, step=None, agent_name=None, reasoning=None, usage=None, metadata=None
    )

    await insert(store, a_thread())
    first = await store.transact("first", lambda tx: tx.insert_message(a_message("message_1")))
    second = await store.transact("second", lambda tx: tx.insert_message(bare))

    assert first == a_message("message_1", seq=first.seq)
    assert second == replace(bare, seq=second.seq)
    assert first.seq < second.seq
    assert await store.read(lambda tx: tx.message("message_1")) == first
    assert await store.read(lambda tx: tx.messages_of("thread_1")) == [first, second]
    assert await store.read(lambda tx: tx.message("message_3")) is None


async def test_a_message_needs_its_thread_and_a_new_id(store: Store) -> None:
    await insert(store, a_thread())
    await store.transact("first", lambda tx: tx.insert_message(a_message("message_1")))

    with pytest.raises(ValueError, match="thread_9"):
        await store.transact("lost", lambda tx: tx.insert_message(a_message("message_2", thread_id="thread_9")))
    with pytest.raises(ValueError, match="message_1"):
        await store.transact("again", lambda tx: tx.insert_message(a_message("message_1")))

    assert len(await store.read(lambda tx: tx.messages_of("thread_1"))) == 1


async def test_messages_submitted_at_once_get_different_places(store: Store) -> None:
    await insert(store, a_thread())

    def say(message_id: str) -> Callable[[Tx], Message]:
        return lambda tx: tx.insert_message(a_message(message_id))

    stored = await asyncio.gather(*(store.transact("say", say(f"message_{n}")) for n in range(20)))

    messages = await store.read(lambda tx: tx.messages_of("thread_1"))
    assert messages == sorted(stored, key=lambda message: message.seq)
    assert len({message.seq for message in messages}) == 20


async def test_messages_are_read_from_a_place_and_from_the_end(store: Store) -> None:
    await insert(store, a_thread(), a_thread("thread_2"))
    stored = await store.transact("five", lambda tx: [tx.insert_message(a_message(f"message_{n}")) for n in range(5)])
    await store.transact("other", lambda tx: tx.insert_message(a_message("elsewhere", thread_id="thread_2")))

    assert await store.read(lambda tx: tx.messages_of("thread_1", from_seq=stored[3].seq)) == stored[3:]
    assert await store.read(lambda tx: tx.messages_of("thread_1", last=2)) == stored[3:]
    assert await store.read(lambda tx: tx.messages_of("thread_1", last=9)) == stored
    assert await store.read(lambda tx: tx.messages_of("thread_1", from_seq=stored[4].seq, last=2)) == stored[4:]
    assert await store.read(lambda tx: tx.messages_of("thread_9")) == []


async def test_deleting_messages_takes_their_calls_and_votes_and_never_gives_a_place_again(store: Store) -> None:
    await insert(store, a_thread())
    kept, gone = await store.transact(
        "messages", lambda tx: [tx.insert_message(a_message(id_)) for id_ in ("message_1", "message_2")]
    )
    await insert(store, a_call("kept", message_id="message_1"), a_call("gone", message_id="message_2"))
    await insert(store, a_vote("kept"), a_vote("gone"))

    await store.transact("delete", lambda tx: tx.delete_messages("thread_1", from_seq=gone.seq))
    later = await store.transact("later", lambda tx: tx.insert_message(a_message("message_3")))

    assert await store.read(lambda tx: tx.messages_of("thread_1")) == [kept, later]
    assert later.seq > gone.seq
    assert await store.read(lambda tx: tx.call("gone")) is None
    assert await store.read(lambda tx: tx.votes_of("gone")) == []
    assert await store.read(lambda tx: tx.call("kept")) is not None
    assert len(await store.read(lambda tx: tx.votes_of("kept"))) == 1


async def test_adopting_moves_the_assistants_messages_with_their_calls_to_the_end(store: Store) -> None:
    await insert(
        store,
        a_thread("main"),
        a_thread("child"),
        a_message("before", thread_id="main"),
        a_message("task", thread_id="child", role=Role.USER),
        a_message("first", thread_id="child"),
        a_call("call of first", message_id="first", thread_id="child"),
        a_message("second", thread_id="child"),
        a_call("call of second", message_id="second", thread_id="child"),
    )
    await store.transact("adopt", lambda tx: tx.adopt_messages(from_thread="child", to_thread="main"))
    await store.transact("none left", lambda tx: tx.adopt_messages(from_thread="child", to_thread="main"))
    await store.transact("after", lambda tx: tx.insert_message(a_message("after", thread_id="main")))

    main = await store.read(lambda tx: tx.messages_of("main"))
    assert [message.id for message in main] == ["before", "first", "second", "after"]
    assert [message.id for message in await store.read(lambda tx: tx.messages_of("child"))] == ["task"]
    calls = await store.read(lambda tx: tx.calls_of_thread("main"))
    assert [(call.id, call.thread_id) for call in calls] == [("call of first", "main"), ("call of second", "main")]
