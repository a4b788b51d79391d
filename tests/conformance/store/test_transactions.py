"""What a transaction promises, whatever the store: all or nothing, in order, told after the commit."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from signoff.errors import LeaseLost
from signoff.ports.store import Store, Tx
from tests.conformance.store.rows import a_message, a_thread, insert


def say(message_id: str) -> Callable[[Tx], object]:
    return lambda tx: tx.insert_message(a_message(message_id))


def say_soon(message_id: str) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        tx.insert_message(a_message(message_id))

    return work


def fail(error: BaseException) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        tx.change_thread("thread_1", title="never")
        tx.insert_message(a_message("never"))
        raise error

    return work


async def said(store: Store) -> list[str]:
    return [message.id for message in await store.read(lambda tx: tx.messages_of("thread_1"))]


async def test_a_transaction_sees_its_own_writes_and_gives_its_result(store: Store) -> None:
    def work(tx: Tx) -> str:
        tx.insert_thread(a_thread())
        tx.change_thread("thread_1", title="New")
        thread = tx.thread("thread_1")
        assert thread is not None
        return thread.title

    assert await store.transact("work", work) == "New"


@pytest.mark.parametrize("error", [RuntimeError("no"), LeaseLost("no")])
async def test_nothing_of_a_failed_transaction_is_written(store: Store, error: BaseException) -> None:
    await insert(store, a_thread(), a_message("kept"))

    with pytest.raises(type(error)) as caught:
        await store.transact("fails", fail(error))

    assert caught.value is error
    assert await said(store) == ["kept"]
    assert await store.read(lambda tx: tx.thread("thread_1")) == a_thread()


async def test_one_failing_member_harms_no_other_of_its_group(store: Store) -> None:
    await insert(store, a_thread())

    results = await asyncio.gather(
        store.transact("first", say("first")),
        store.transact("fails", fail(RuntimeError("no"))),
        store.transact("fails too", say("first")),
        store.transact("last", say("last")),
        return_exceptions=True,
    )

    assert isinstance(results[1], RuntimeError)
    assert isinstance(results[2], ValueError)
    assert await said(store) == ["first", "last"]
    assert await store.read(lambda tx: tx.thread("thread_1")) == a_thread()


async def test_transactions_submitted_together_take_effect_in_their_order(store: Store) -> None:
    await insert(store, a_thread())
    ids = [f"message_{n:02}" for n in range(50)]

    await asyncio.gather(*(store.transact("say", say(id_)) for id_ in ids))

    assert await said(store) == ids


async def test_what_is_submitted_soon_takes_effect_before_what_comes_later(store: Store) -> None:
    await insert(store, a_thread())
    ids = [f"message_{n:02}" for n in range(40)]

    for number, id_ in enumerate(ids):
        if number % 4:
            store.transact_soon("soon", say_soon(id_))
        else:
            await store.transact("say", say(id_))
    await store.transact("end", lambda tx: tx.change_thread("thread_1", title="end"))

    assert await said(store) == ids


async def test_what_is_submitted_soon_comes_before_any_later_transaction_of_another_task(store: Store) -> None:
    """The one that carries the pieces may still be on its way when the next is submitted."""
    await insert(store, a_thread(), a_thread("thread_2"))

    def look(tx: Tx) -> int:
        return len(tx.messages_of("thread_1"))

    for number in range(1, 21):
        store.transact_soon("soon", say_soon(f"message_{number}"))
        carrier = asyncio.create_task(store.transact("carrier", lambda tx: tx.change_thread("thread_2", title="x")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await store.transact("later", look) == number
        await carrier


async def test_what_is_submitted_soon_takes_effect_on_its_own(store: Store) -> None:
    await insert(store, a_thread())
    committed = asyncio.Event()

    def work(tx: Tx) -> None:
        say("soon")(tx)
        tx.on_commit(committed.set)

    store.transact_soon("soon", work)
    await asyncio.wait_for(committed.wait(), 5)

    assert await said(store) == ["soon"]


async def test_a_failing_piece_is_logged_and_drops_only_itself(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await insert(store, a_thread())

    with caplog.at_level(logging.ERROR):
        store.transact_soon("before", say_soon("before"))
        store.transact_soon("the broken piece", fail(RuntimeError("no")))
        store.transact_soon("after", say_soon("after"))
        await store.transact("carrier", say("carrier"))

    assert await said(store) == ["before", "after", "carrier"]
    assert "the broken piece" in caplog.text


async def test_pieces_survive_the_failure_of_the_transaction_that_carries_them(store: Store) -> None:
    await insert(store, a_thread())

    store.transact_soon("soon", say_soon("soon"))
    with pytest.raises(RuntimeError, match="no"):
        await store.transact("fails", fail(RuntimeError("no")))

    assert await said(store) == ["soon"]


async def test_callbacks_run_in_the_loop_after_the_commit_and_before_the_caller_goes_on(store: Store) -> None:
    await insert(store, a_thread())
    called: list[str] = []

    def note(name: str) -> Callable[[], None]:
        def callback() -> None:
            asyncio.get_running_loop()
            called.append(name)

        return callback

    def work(tx: Tx) -> None:
        tx.on_commit(note("first"))
        tx.on_commit(note("second"))
        say("message_1")(tx)
        assert called == []

    def work_and_fail(tx: Tx) -> None:
        tx.on_commit(note("never"))
        raise RuntimeError("no")

    await store.transact("work", work)
    assert called == ["first", "second"]

    with pytest.raises(RuntimeError, match="no"):
        await store.transact("fails", work_and_fail)
    assert called == ["first", "second"]


async def test_a_failing_callback_harms_nobody(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await insert(store, a_thread())
    called: list[str] = []

    def work(tx: Tx) -> str:
        tx.on_commit(lambda: [][0])
        tx.on_commit(lambda: called.append("second"))
        return "result"

    assert await store.transact("work", work) == "result"

    assert called == ["second"]
    assert "IndexError" in caplog.text


async def test_a_read_must_not_write(store: Store) -> None:
    with pytest.raises(Exception, match=r"read|readonly"):
        await store.read(lambda tx: tx.insert_thread(a_thread()))

    assert await store.read(lambda tx: tx.thread("thread_1")) is None
    await insert(store, a_thread())


async def test_an_error_of_a_read_comes_out_and_the_next_read_works(store: Store) -> None:
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            await store.read(lambda tx: 1 // 0)

    assert await store.read(lambda tx: tx.thread("thread_1")) is None


async def test_who_stops_waiting_harms_nobody(store: Store) -> None:
    await insert(store, a_thread())

    waiting = asyncio.create_task(store.transact("cancelled", say("cancelled")))
    await asyncio.sleep(0)
    waiting.cancel()
    await store.transact("next", say("next"))

    assert waiting.cancelled()
    assert "next" in await said(store)


async def test_closing_writes_what_was_accepted_and_takes_no_more(store: Store) -> None:
    await insert(store, a_thread())
    accepted = asyncio.create_task(store.transact("accepted", say("accepted")))
    await asyncio.sleep(0)
    store.transact_soon("soon", say_soon("soon"))

    await store.close()
    await store.close()

    await accepted
    with pytest.raises(RuntimeError, match="not open"):
        await store.transact("late", say("late"))
    with pytest.raises(RuntimeError, match="not open"):
        store.transact_soon("late", say_soon("late"))
    with pytest.raises(RuntimeError, match="not open"):
        await store.read(lambda tx: tx.thread("thread_1"))
