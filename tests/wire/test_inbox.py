"""The inboxes: every open card once, in the order that was asked for, with nothing in it hidden (C52, C53)."""

from datetime import timedelta

import httpx
import pytest

from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Run
from signoff.ports.store import Tx
from signoff.testing.clock import START
from tests.wire.desk import ADMIN, ANA, Desk, a_desk

COUNT = 1000


def a_card(number: int, *, arguments: JsonObject | None = None, deadline: timedelta | None = None) -> Call:
    return Call(
        id=f"call_{number:04d}",
        run_id="run_1",
        thread_id="thread_1",
        message_id="message_1",
        step=0,
        index=number,
        name="refundOrder" if number % 2 else "purgeCache",
        kind=ToolKind.ACTION,
        arguments=arguments or {"n": number},
        status=CallStatus.PENDING,
        actor_id="ana",
        agent_name="desk",
        created_at=START - timedelta(seconds=number),
        approver="ADMIN",
        expires_at=None if deadline is None else START + deadline,
    )


async def with_cards(desk: Desk, cards: list[Call]) -> None:
    def insert(tx: Tx) -> None:
        run = Run(
            id="run_1",
            thread_id="thread_1",
            actor_id="ana",
            agent="desk",
            stream_id="run_1",
            input={},
            created_at=START,
        )
        tx.insert_run(run)
        for card in cards:
            tx.insert_call(card)

    await desk.signoff.store.transact("cards", insert)


async def settle(desk: Desk, call_id: str) -> None:
    open_ = frozenset({CallStatus.PENDING})
    await desk.signoff.store.transact(
        "settle", lambda tx: tx.change_call(call_id, expect=open_, status=CallStatus.REJECTED)
    )


@pytest.mark.parametrize("path", ["/approvals", "/approvals/mine"])
@pytest.mark.parametrize("order", ["oldest", "deadline"])
async def test_a_thousand_cards_are_walked_while_cards_settle(path: str, order: str) -> None:
    desk = a_desk()
    cards = [a_card(n, deadline=timedelta(hours=1, seconds=n // 2) if n % 3 else None) for n in range(COUNT)]
    far = START + timedelta(days=1)
    expected = [
        card.id
        for card in sorted(
            cards, key=lambda card: (card.created_at if order == "oldest" else card.expires_at or far, card.id)
        )
    ]
    async with desk.client(ADMIN if path == "/approvals" else ANA) as client:
        await with_cards(desk, cards)
        seen: list[str] = []
        settled: set[str] = set()
        query = {"limit": "80", "order": order}
        while True:
            items, total, cursor = _page(await client.get(path, params=query))
            assert total == COUNT - len(settled)
            seen += items
            if cursor is None:
                break
            query["cursor"] = cursor
            coming = next(id_ for id_ in reversed(expected) if id_ not in seen and id_ not in settled)
            for id_ in (items[0], coming):
                await settle(desk, id_)
                settled.add(id_)

    assert seen == [id_ for id_ in expected if id_ in seen], "in order, each once"
    assert set(expected) - set(seen) <= settled, "nothing that is open was left out"


def _page(response: httpx.Response) -> tuple[list[str], int, str | None]:
    body = response.json()
    if isinstance(body, list):
        total, cursor = int(response.headers["x-total-count"]), response.headers.get("x-next-cursor")
        return [card["toolCallId"] for card in body], total, cursor
    return [card["toolCallId"] for card in body["items"]], body["total"], body.get("nextCursor")


async def test_both_inboxes_take_the_same_filters() -> None:
    desk = a_desk()
    async with desk.client(ADMIN) as client:
        await with_cards(desk, [a_card(n, deadline=timedelta(minutes=n) if n else None) for n in range(4)])
        for path, headers in (("/approvals", ADMIN), ("/approvals/mine", ANA)):

            async def listed(**query: str) -> list[str]:
                items, total, _ = _page(await client.get(path, params=query, headers=headers))  # noqa: B023
                assert total == len(items)
                return items

            assert await listed() == ["call_0003", "call_0002", "call_0001", "call_0000"]
            assert await listed(order="deadline") == ["call_0001", "call_0002", "call_0003", "call_0000"]
            assert await listed(tool="refundOrder") == ["call_0003", "call_0001"]
            assert await listed(agent="desk", age="2") == ["call_0003"]
            assert await listed(age="0") == ["call_0003", "call_0002", "call_0001"]
            assert await listed(due="2026-01-01T00:02:30Z", order="deadline") == ["call_0001", "call_0002"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"order": "newest"}, "order"),
        ({"age": "-1"}, "age"),
        ({"age": "1d"}, "age"),
        ({"age": "99999999999999"}, "age"),
        ({"due": "tomorrow"}, "due"),
        ({"limit": "501"}, "limit"),
        ({"cursor": "x"}, "cursor"),
    ],
)
async def test_a_query_that_means_nothing_is_refused(query: dict[str, str], field: str) -> None:
    async with a_desk().client(ANA) as client:
        refused = await client.get("/approvals/mine", params=query)
    assert refused.status_code == 400
    assert refused.json()["field"] == field


async def test_a_cursor_belongs_to_its_order() -> None:
    desk = a_desk()
    async with desk.client(ANA) as client:
        await with_cards(desk, [a_card(n) for n in range(3)])
        _, _, cursor = _page(await client.get("/approvals/mine", params={"limit": "1"}))
        assert cursor is not None
        refused = await client.get("/approvals/mine", params={"cursor": cursor, "order": "deadline"})
    assert (refused.status_code, refused.json()["field"]) == (400, "cursor")


async def test_what_would_run_is_shown_with_nothing_hidden() -> None:
    arguments: JsonObject = {
        "to": "ana\u202egro.live",
        "note": "pay\u200d\u2060me",
        "text": "a" * 100_000 + "THE END",
        "lines": 'x"\ncents = 1\norder = "fine"',
    }
    desk = a_desk()
    async with desk.client(ANA) as client:
        await with_cards(desk, [a_card(0, arguments=arguments)])
        [card] = (await client.get("/approvals/mine")).json()

    assert card["input"] == arguments, "the raw arguments are there as they are"
    text = card["safeText"]
    assert text.isprintable() or text.count("\n") == 3
    lines = text.split("\n")
    assert lines[0] == 'to = "ana\\u202egro.live"  (12 characters)'
    assert lines[1] == 'note = "pay\\u200d\\u2060me"  (7 characters)'
    assert "THE END" in lines[2]
    assert "characters are not shown" in lines[2]
    assert "(100,007 characters)" in lines[2]
    assert lines[3] == 'lines = "x\\"\\ncents = 1\\norder = \\"fine\\""  (27 characters)'
    assert len(lines) == 4
