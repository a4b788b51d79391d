"""The inbox's two orders, walked page by page while cards settle (C52)."""

import pytest

from signoff.domain.call import OPEN, CallStatus
from signoff.errors import InvalidInput
from signoff.ports.store import CardFilter, CardOrder, Store, Tx
from tests.conformance.store.rows import a_call, a_run, at

ACME = CardFilter(tenant="acme")


async def test_nearest_deadline_first_and_those_without_one_last(store: Store) -> None:
    def insert(tx: Tx) -> None:
        tx.insert_run(a_run())
        tx.insert_call(a_call("never_b", created_at=at(0)))
        tx.insert_call(a_call("late", created_at=at(1), expires_at=at(90)))
        tx.insert_call(a_call("soon", created_at=at(2), expires_at=at(30)))
        tx.insert_call(a_call("never_a", created_at=at(3)))
        tx.insert_call(a_call("soon_too", created_at=at(4), expires_at=at(30)))

    await store.transact("insert", insert)

    ids = [card for page in await _pages(store, CardOrder.DEADLINE, limit=2) for card in page]
    assert ids == ["soon", "soon_too", "late", "never_a", "never_b"]
    ids = [card for page in await _pages(store, CardOrder.OLDEST, limit=2) for card in page]
    assert ids == ["never_b", "late", "soon", "never_a", "soon_too"]


@pytest.mark.parametrize("order", CardOrder)
async def test_every_open_card_is_seen_once_while_cards_settle(store: Store, order: CardOrder) -> None:
    """A thousand cards; after each page one that was shown and one that is still to come are settled."""
    count, limit = 1000, 90

    def insert(tx: Tx) -> None:
        tx.insert_run(a_run())
        for number in range(count):
            deadline = at(5000 - number // 2) if number % 3 else None
            tx.insert_call(a_call(f"call_{number:04d}", created_at=at(number // 4), expires_at=deadline))

    await store.transact("insert", insert)
    whole = (await store.read(lambda tx: tx.open_cards(ACME, cursor=None, limit=count, order=order))).cards
    expected = [card.id for card in whole]
    assert len(expected) == count

    seen: list[str] = []
    settled: list[str] = []
    cursor: str | None = None
    while True:
        after = cursor
        page = await store.read(lambda tx: tx.open_cards(ACME, cursor=after, limit=limit, order=order))  # noqa: B023
        assert page.total == count - len(settled)
        seen += [card.id for card in page.cards]
        cursor = page.next_cursor
        if cursor is None:
            break
        unseen = [id_ for id_ in expected if id_ not in seen and id_ not in settled]
        for id_ in (seen[-1], unseen[len(unseen) // 2]):
            await store.transact("settle", lambda tx: tx.change_call(id_, expect=OPEN, status=CallStatus.REJECTED))  # noqa: B023
            settled.append(id_)

    assert seen == [id_ for id_ in expected if id_ in seen]
    assert set(expected) - set(seen) <= set(settled)


async def test_cursor_of_another_order_is_refused(store: Store) -> None:
    def insert(tx: Tx) -> None:
        tx.insert_run(a_run())
        tx.insert_call(a_call("call_1"))
        tx.insert_call(a_call("call_2"))

    await store.transact("insert", insert)
    page = await store.read(lambda tx: tx.open_cards(ACME, cursor=None, limit=1))

    with pytest.raises(InvalidInput, match="another order") as refused:
        await store.read(lambda tx: tx.open_cards(ACME, cursor=page.next_cursor, limit=1, order=CardOrder.DEADLINE))
    assert refused.value.field == "cursor"


async def _pages(store: Store, order: CardOrder, *, limit: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        after = cursor
        page = await store.read(lambda tx: tx.open_cards(ACME, cursor=after, limit=limit, order=order))  # noqa: B023
        pages.append([card.id for card in page.cards])
        cursor = page.next_cursor
        if cursor is None:
            return pages
