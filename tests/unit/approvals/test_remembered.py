"""A remembered approval is the yes of whoever gave it, not of everybody."""

from collections.abc import AsyncIterator

import pytest

from signoff import Actor, Agent, define_tool
from signoff.approvals.rules import RulesPolicy
from signoff.domain.call import CallStatus
from signoff.domain.jsonvalue import JsonObject
from signoff.testing.outside import Bank
from signoff.testing.scripted import Answer, ask_for
from signoff.testing.stores import memory_stores
from signoff.testing.world import World

BO = Actor(id="bo", roles=frozenset({"finance"}))
CY = Actor(id="cy", roles=frozenset({"finance"}))

RULES = """
[[rules]]
tool = "refund"
when.cents.above = 90000
approver = "finance"
quorum = 2

[[rules]]
tool = "refund"
when.cents.above = 5000
approver = "finance"
"""


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
async def world(bank: Bank) -> AsyncIterator[World]:
    async def refund(cents: int) -> JsonObject:
        return bank.refund("A1", cents)

    desk = Agent("desk", instructions="Serve.", tools=[define_tool(refund, kind="action")])
    script: dict[str, list[Answer]] = {
        str(cents): [ask_for("refund", {"cents": cents}), "Done."] for cents in (500, 600, 6000, 99_000)
    }
    world = World(memory_stores(), durable=False, script=script, agents=[desk], policy=RulesPolicy.from_toml(RULES))
    await world.start()
    yield world
    await world.close()


async def test_it_covers_what_asks_the_same_person(world: World, bank: Bank) -> None:
    started = await world.send("500")
    await world.approve(await world.card(), remember=True)
    await world.completed()

    await world.send("600", thread=started.thread_id)
    await world.completed()

    [call] = await world.calls()
    assert (call.status, call.decided_by, call.decided_via) == (CallStatus.COMPLETED, "ana", "remembered")
    assert [payment.cents for payment in bank.payments] == [500, 600]


async def test_it_does_not_cover_what_asks_somebody_else_or_more_than_one(world: World, bank: Bank) -> None:
    started = await world.send("500")
    await world.approve(await world.card(), remember=True)
    await world.completed()

    await world.send("6000", thread=started.thread_id)
    card = await world.card()
    assert card.approver == "finance"
    await world.approve(card, by=BO, remember=True)
    await world.completed()

    await world.send("99000", thread=started.thread_id)
    card = await world.card()
    assert (card.approver, card.quorum) == ("finance", 2)
    for each in (BO, CY):
        await world.approve(card, by=each)
    await world.completed()

    assert [payment.cents for payment in bank.payments] == [500, 6000, 99_000]


async def test_other_conversations_are_asked(world: World, bank: Bank) -> None:
    await world.send("500")
    await world.approve(await world.card(), remember=True)
    await world.completed()

    await world.send("600")
    assert (await world.card()).status is CallStatus.PENDING
    assert len(bank.payments) == 1
