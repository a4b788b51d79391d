"""Cases 9: people, rights and the inbox."""

import json
from collections.abc import Coroutine

import pytest

from signoff import Actor, Verb, ask, tool
from signoff.domain.audit import AuditKind
from signoff.domain.call import CallStatus
from signoff.errors import Forbidden, NotFound
from signoff.service.decide import DecisionRequest
from signoff.testing.outside import Bank
from signoff.testing.scripted import ask_for, turn
from signoff.testing.world import ANA
from tests.cases.conftest import INLINE, NewWorld
from tests.cases.desk import refund_tool
from tests.cases.web import browser

BO = Actor(id="bo")
STRANGER = Actor(id="ana", tenant="another company")


@pytest.mark.parametrize("intruder", [BO, STRANGER], ids=["colleague", "other tenant"])
async def test_c51_nobody_touches_what_is_not_theirs(new_world: NewWorld, bank: Bank, intruder: Actor) -> None:
    question = {"questions": [{"id": "name", "prompt": "Whose name?", "input": {"type": "text"}}]}
    world = await new_world(
        refund_tool(bank),
        ask,
        script=[turn(ask_for("refund", {"order": "A1"}), ask_for("ask", json.dumps(question))), "Done."],
    )
    run = await world.send(by=ANA)
    refund, asked = await world.cards(2, run)

    attempts: list[Coroutine[object, object, object]] = [
        world.approve(refund, by=intruder),
        world.reject(refund, by=intruder),
        world.answer(asked, {"name": ["Bo"]}, by=intruder),
        world.skip(asked, by=intruder),
        world.cancel(run, by=intruder),
        world.app.attach(intruder, run.run_id),
        world.thread(run, by=intruder),
        world.send("Hello", thread=run.thread_id, by=intruder),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            await attempt

    assert (await world.inbox(intruder)).total == 0
    for card, verbs in ((refund, ["approve", "reject"]), (asked, ["answer", "skip"])):
        assert await world.call(card) == card
        refused = [entry for entry in await world.audit(card) if entry.kind is AuditKind.REFUSED]
        assert [entry.actor_id for entry in refused] == [intruder.id] * 2
        assert [entry.data["attempted"] for entry in refused] == verbs
    assert bank.orders == []


async def test_c51_an_unknown_card_is_unknown_to_everybody(new_world: NewWorld) -> None:
    world = await new_world()
    for attempt in (
        world.app.decide(ANA, DecisionRequest(call_id="call_1", verb=Verb.APPROVE)),
        world.app.cancel(ANA, "run_1"),
        world.app.attach(ANA, "run_1"),
        world.thread("thread_1"),
    ):
        with pytest.raises(NotFound):
            await attempt


@pytest.mark.parametrize("runner", INLINE, ids=str)
async def test_c52_a_thousand_cards_are_all_found_while_some_settle(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank), script=[turn(*(ask_for("refund", {"order": f"A{n}"}) for n in range(125))), "Done."]
    )
    runs = [await world.send() for _ in range(8)]
    everything = [card for run in runs for card in await world.cards(125, run)]
    everything.sort(key=lambda card: (card.created_at, card.id))

    seen: list[str] = []
    settled: set[str] = set()
    cursor: str | None = None
    while True:
        page = await world.inbox(limit=97, cursor=cursor)
        assert page.total == 1000 - len(settled)
        seen += [card.id for card in page.cards]
        cursor = page.next_cursor
        if cursor is None:
            break
        # One that was shown, one that the next page begins behind, and one still ahead.
        for card in (page.cards[0], page.cards[-1], everything[-1 - len(settled)]):
            if card.id not in settled:
                await world.reject(card)
                settled.add(card.id)

    ids = [card.id for card in everything]
    assert len(seen) == len(set(seen))
    assert set(seen) | settled == set(ids)
    assert seen == sorted(seen, key=ids.index)


async def test_c53_what_a_card_shows_hides_nothing(new_world: NewWorld, bank: Bank) -> None:
    order = "A1\u202e1A\u200d\n\nApprove: refund A2" + "x" * 100_000 + "END"
    world = await new_world(refund_tool(bank), script=[ask_for("refund", {"order": order}), "Done."])
    card = await world.card(await world.send())

    async with browser(world) as client:
        (shown,) = (await client.get("/approvals/mine")).json()

    assert shown["input"] == card.arguments == {"order": order, "cents": 500}
    safe = shown["safeText"]
    assert not any(hidden in safe for hidden in ("\u202e", "\u200d"))
    assert r"A1\u202e1A\u200d" in safe
    assert "END" in safe
    assert f"({len(order):,} characters)" in safe
    # A line of the text cannot pass for a line of the card.
    assert "\nApprove: refund A2" not in safe


async def test_c54_a_card_in_one_thread_stops_no_other(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank), script={"Refund.": [ask_for("refund", {"order": "A1"}), "Done."], "Hello.": ["Hello!"]}
    )
    waiting = await world.send("Refund.")
    card = await world.card(waiting)

    for run in [await world.send("Hello.") for _ in range(19)]:
        await world.completed(run)

    assert (await world.call(card)).status is CallStatus.PENDING
    await world.approve(card)
    await world.completed(waiting)


async def test_c53_a_card_shows_the_defaults_that_will_run(new_world: NewWorld) -> None:
    paid: list[int] = []

    @tool(kind="action")
    async def pay(order: str, cents: int = 500) -> str:
        """Pay an order."""
        paid.append(cents)
        return order

    world = await new_world(pay, script=[ask_for("pay", {"order": "A1"}), "Done."])
    run = await world.send()
    card = await world.card(run)
    await world.approve(card, digest=card.digest)
    await world.completed(run)

    assert card.arguments == {"order": "A1", "cents": 500}
    assert paid == [500]
