"""Who delivers an outbox entry, and that a decision link works once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from signoff.domain.run import RunStatus
from signoff.ports.store import Store
from tests.conformance.store.rows import a_call, a_run, an_outbox_entry, at


async def test_an_entry_is_changed_only_while_it_is_due_when_expected(store: Store) -> None:
    entry = an_outbox_entry("entry_1", due_at=at(0))
    held = replace(entry, due_at=at(60))
    await store.transact("put", lambda tx: tx.put_outbox(entry))

    assert await store.transact("take", lambda tx: tx.change_outbox(held, expect_due_at=at(0)))
    assert not await store.transact("take again", lambda tx: tx.change_outbox(held, expect_due_at=at(0)))
    assert await store.read(lambda tx: tx.due_outbox(at(59), limit=10)) == []
    assert await store.read(lambda tx: tx.due_outbox(at(60), limit=10)) == [held]

    done = replace(held, delivered_at=at(61), attempts=1)
    assert await store.transact("done", lambda tx: tx.change_outbox(done, expect_due_at=at(60)))
    assert await store.read(lambda tx: tx.due_outbox(at(99), limit=10)) == []
    assert not await store.transact("late", lambda tx: tx.change_outbox(held, expect_due_at=at(60)))


async def test_an_entry_that_is_gone_does_not_come_back(store: Store) -> None:
    entry = an_outbox_entry("entry_1")
    assert not await store.transact("change", lambda tx: tx.change_outbox(entry, expect_due_at=entry.due_at))
    assert await store.read(lambda tx: tx.due_outbox(at(99), limit=10)) == []


async def test_of_two_processes_one_gets_the_entry(open_store: Callable[..., Any]) -> None:
    entry = an_outbox_entry("entry_1", due_at=at(0))
    held = replace(entry, due_at=at(60))
    async with open_store() as first, open_store() as second:
        await first.transact("put", lambda tx: tx.put_outbox(entry))
        won = await asyncio.gather(
            *(
                store.transact("take", lambda tx: tx.change_outbox(held, expect_due_at=at(0)))
                for store in (first, second, first, second)
            )
        )
    assert sorted(won) == [False, False, False, True]


async def test_a_link_is_used_once(store: Store) -> None:
    assert not await store.read(lambda tx: tx.link_used("link_1"))

    assert await store.transact("use", lambda tx: tx.use_link("link_1", call_id="call_1", at=at(1)))
    assert not await store.transact("again", lambda tx: tx.use_link("link_1", call_id="call_1", at=at(2)))

    assert await store.read(lambda tx: tx.link_used("link_1"))
    assert await store.transact("other", lambda tx: tx.use_link("link_2", call_id="call_1", at=at(3)))


async def test_of_two_processes_one_uses_the_link(open_store: Callable[..., Any]) -> None:
    async with open_store() as first, open_store() as second:
        won = await asyncio.gather(
            *(
                store.transact("use", lambda tx: tx.use_link("link_1", call_id="call_1", at=at(1)))
                for store in (first, second, first, second)
            )
        )
    assert sorted(won) == [False, False, False, True]


async def test_used_links_go_with_their_run(store: Store) -> None:
    await store.transact("run", lambda tx: tx.insert_run(a_run()))
    await store.transact("call", lambda tx: tx.insert_call(a_call("call_1")))
    await store.transact("use", lambda tx: tx.use_link("link_1", call_id="call_1", at=at(1)))

    await store.transact("end", lambda tx: tx.settle_run("run_1", status=RunStatus.COMPLETED, ended_at=at(2)))
    await store.transact("delete", lambda tx: tx.delete_run("run_1"))

    assert not await store.read(lambda tx: tx.link_used("link_1"))
