"""Calls and cards: one conditional write decides, deadlines are exact, no open card is missed (C10, C11, C52)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from signoff.domain.approval import Remembered
from signoff.domain.call import OPEN, Call, CallStatus
from signoff.domain.run import RunStatus
from signoff.errors import InvalidInput
from signoff.ports.store import CallChanges, CardFilter, Store, Tx
from tests.conformance.store.rows import a_call, a_full_call, a_message, a_run, a_thread, a_vote, at, insert

ALL = CardFilter(tenant="acme")


def decide(status: CallStatus, *, by: str) -> Callable[[Tx], bool]:
    return lambda tx: tx.decide_call("call_1", expect=OPEN, now=at(10), status=status, decided_by=by)


async def test_call_comes_back_as_it_was(store: Store) -> None:
    bare = a_call("bare", arguments=None)

    await insert(store, a_full_call("full"), bare)

    assert await store.read(lambda tx: tx.call("full")) == a_full_call("full")
    assert await store.read(lambda tx: tx.call("bare")) == bare
    assert await store.read(lambda tx: tx.call("unknown")) is None
    with pytest.raises(ValueError, match="full"):
        await insert(store, a_call("full"))


async def test_calls_of_a_thread_follow_its_messages(store: Store) -> None:
    await insert(
        store,
        a_thread(),
        a_thread("thread_2"),
        *(a_message(f"message_{n}") for n in range(3)),
        a_message("elsewhere", thread_id="thread_2"),
        a_call("a", message_id="message_2", index=0, step=2),
        a_call("b", message_id="message_1", index=1, step=1),
        a_call("c", message_id="message_1", index=0, step=1),
        a_call("d", message_id="elsewhere", thread_id="thread_2"),
    )
    last = await store.read(lambda tx: tx.messages_of("thread_1", last=1))

    assert [call.id for call in await store.read(lambda tx: tx.calls_of_thread("thread_1"))] == ["c", "b", "a"]
    later = await store.read(lambda tx: tx.calls_of_thread("thread_1", from_seq=last[0].seq))
    assert [call.id for call in later] == ["a"]


async def test_calls_of_a_run_come_by_step_and_index(store: Store) -> None:
    await insert(
        store,
        a_call("a", step=10, index=0),
        a_call("b", step=2, index=1),
        a_call("c", step=2, index=0),
        a_call("d", run_id="run_2"),
    )

    assert [call.id for call in await store.read(lambda tx: tx.calls_of_run("run_1"))] == ["c", "b", "a"]


async def test_a_change_needs_an_expected_status(store: Store) -> None:
    await insert(store, a_call("call_1"))

    def change(*expect: CallStatus) -> Callable[[Tx], bool]:
        return lambda tx: tx.change_call(
            "call_1", expect=frozenset(expect), status=CallStatus.COMPLETED, output={"ok": True}, ended_at=at(9)
        )

    assert not await store.transact("wrong", change(CallStatus.RUNNING, CallStatus.APPROVED))
    assert not await store.transact("none", change())
    assert await store.read(lambda tx: tx.call("call_1")) == a_call("call_1")

    assert await store.transact("right", change(CallStatus.RUNNING, CallStatus.PENDING))
    assert not await store.transact("again", change(CallStatus.RUNNING, CallStatus.PENDING))
    assert await store.read(lambda tx: tx.call("call_1")) == replace(
        a_call("call_1"), status=CallStatus.COMPLETED, output={"ok": True}, ended_at=at(9)
    )


async def test_every_changeable_column_changes(store: Store) -> None:
    before, after = a_call("call_1"), a_full_call("call_1")
    await insert(store, before)

    changes = {name: getattr(after, name) for name in CallChanges.__annotations__ if name != "status"}
    assert await store.transact("change", lambda tx: tx.change_call("call_1", expect=OPEN, **changes))

    assert await store.read(lambda tx: tx.call("call_1")) == replace(before, **changes)


async def test_without_changes_a_change_says_whether_the_status_is_expected(store: Store) -> None:
    await insert(store, a_call("call_1"))

    assert await store.transact("open", lambda tx: tx.change_call("call_1", expect=OPEN))
    assert not await store.transact("final", lambda tx: tx.change_call("call_1", expect=frozenset(CallStatus) - OPEN))


async def test_of_twenty_decisions_one_wins_and_is_what_is_stored(store: Store) -> None:
    await insert(store, a_run(), a_call("call_1"))
    verdicts = [CallStatus.APPROVED, CallStatus.REJECTED] * 10

    won = await asyncio.gather(
        *(store.transact("decide", decide(verdict, by=f"person {n}")) for n, verdict in enumerate(verdicts))
    )

    assert sum(won) == 1
    winner = won.index(True)
    call = await store.read(lambda tx: tx.call("call_1"))
    assert call is not None
    assert (call.status, call.decided_by) == (verdicts[winner], f"person {winner}")


@pytest.mark.parametrize(
    ("early", "in_time"),
    [(timedelta(milliseconds=1), True), (timedelta(0), False), (-timedelta(milliseconds=1), False)],
)
async def test_a_decision_is_in_time_before_the_deadline_and_late_at_it(
    store: Store, early: timedelta, in_time: bool
) -> None:
    await insert(store, a_run(), a_call("call_1", expires_at=at(60)))

    decided = await store.transact(
        "decide",
        lambda tx: tx.decide_call("call_1", expect=OPEN, now=at(60) - early, status=CallStatus.APPROVED),
    )

    call = await store.read(lambda tx: tx.call("call_1"))
    assert decided is in_time
    assert call is not None
    assert call.status is (CallStatus.APPROVED if in_time else CallStatus.PENDING)


async def test_open_cards_are_the_pending_and_in_doubt_calls_of_active_runs(store: Store) -> None:
    await insert(
        store,
        a_run("run_1"),
        a_run("ended", status=RunStatus.CANCELLED),
        *(a_call(f"{status}", status=status) for status in CallStatus),
        a_call("of an ended run", run_id="ended"),
        a_call("of a deleted run", run_id="deleted"),
        a_call("of another tenant", tenant="other"),
    )

    page = await store.read(lambda tx: tx.open_cards(ALL, cursor=None, limit=100))

    assert [card.id for card in page.cards] == ["in_doubt", "pending"]
    assert (page.total, page.next_cursor) == (2, None)


async def test_open_cards_are_filtered(store: Store) -> None:
    await insert(
        store,
        a_run(),
        a_call("1"),
        a_call("2", actor_id="bo"),
        a_call("3", name="delete"),
        a_call("4", agent_name="other"),
        a_call("5", created_at=at(1)),
        a_call("6", expires_at=at(60)),
    )

    async def ids(**filters: object) -> tuple[str, int]:
        filter_ = CardFilter(tenant="acme", **filters)  # type: ignore[arg-type]
        page = await store.read(lambda tx: tx.open_cards(filter_, cursor=None, limit=100))
        return "".join(card.id for card in page.cards), page.total

    assert await ids() == ("512346", 6)
    assert await ids(actor_id="bo") == ("2", 1)
    assert await ids(tool="delete") == ("3", 1)
    assert await ids(agent="other") == ("4", 1)
    assert await ids(requested_before=at(3)) == ("5", 1)
    assert await ids(deadline_before=at(60)) == ("", 0)
    assert await ids(deadline_before=at(61)) == ("6", 1)
    assert await ids(open_at=at(59)) == ("512346", 6)
    assert await ids(open_at=at(60)) == ("51234", 5)
    assert await ids(actor_id="ana", tool="refund", agent="desk", deadline_before=at(61)) == ("6", 1)


async def test_a_thousand_cards_are_each_seen_once_while_some_settle(store: Store) -> None:
    """C52: cards made in the same instant, settled between the pages, before and behind the reader."""
    cards = [a_call(f"call_{n:04}", created_at=at(n // 10)) for n in range(1000)]
    await insert(store, a_run(), *cards)

    def settle(ids: list[str]) -> Callable[[Tx], list[bool]]:
        return lambda tx: [tx.change_call(id_, expect=OPEN, status=CallStatus.COMPLETED) for id_ in ids]

    seen: list[Call] = []
    settled: set[str] = set()
    cursor: str | None = None
    while True:
        page = await store.read(lambda tx, cursor=cursor: tx.open_cards(ALL, cursor=cursor, limit=97))  # type: ignore[misc]
        assert page.total == 1000 - len(settled)
        seen += page.cards
        cursor = page.next_cursor
        if cursor is None:
            break
        # One that was just shown, the one the cursor stands on, and one still ahead.
        gone = [page.cards[0].id, page.cards[-1].id, f"call_{len(seen) + 150:04}"]
        assert all(await store.transact("settle", settle([id_ for id_ in gone if id_ < "call_1000"])))
        settled.update(id_ for id_ in gone if id_ < "call_1000")

    ids = [card.id for card in seen]
    assert len(ids) == len(set(ids))
    assert set(ids) | settled == {card.id for card in cards}
    assert ids == sorted(ids)


@pytest.mark.parametrize("cursor", ["", "x", "!!", "bnVsbA", "WzEsMl0", "WyIyMDI2LTAxLTAxIl0", "é" * 5, "\x00"])
async def test_a_cursor_that_was_not_made_here_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await store.read(lambda tx: tx.open_cards(ALL, cursor=cursor, limit=10))

    assert caught.value.field == "cursor"


async def test_a_person_votes_once(store: Store) -> None:
    assert await store.transact("bo", lambda tx: tx.add_vote(a_vote("call_1", "bo", at=at(2))))
    assert await store.transact("ana", lambda tx: tx.add_vote(a_vote("call_1", "ana", at=at(1))))
    assert not await store.transact("bo again", lambda tx: tx.add_vote(a_vote("call_1", "bo", via="slack")))
    assert await store.transact("other card", lambda tx: tx.add_vote(a_vote("call_2", "bo")))

    votes = await store.read(lambda tx: tx.votes_of("call_1"))
    assert votes == [a_vote("call_1", "ana", at=at(1)), a_vote("call_1", "bo", at=at(2))]


async def test_what_is_remembered_is_replaced(store: Store) -> None:
    first = Remembered(thread_id="thread_1", tool="refund", by="ana", approver="requester", at=at(1))
    second = replace(first, by="bo", approver="finance", at=at(2))

    await store.transact("first", lambda tx: tx.remember(first))
    assert await store.read(lambda tx: tx.remembered(thread_id="thread_1", tool="refund")) == first
    await store.transact("second", lambda tx: tx.remember(second))

    assert await store.read(lambda tx: tx.remembered(thread_id="thread_1", tool="refund")) == second
    assert await store.read(lambda tx: tx.remembered(thread_id="thread_1", tool="delete")) is None
    assert await store.read(lambda tx: tx.remembered(thread_id="thread_2", tool="refund")) is None
