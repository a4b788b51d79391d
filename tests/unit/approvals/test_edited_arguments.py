"""An edit is no way around the policy: it is asked again about what would run."""

from collections.abc import AsyncIterator

import pytest

from signoff import Actor, Agent, define_tool
from signoff.approvals.rules import RulesPolicy
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import Forbidden, InvalidInput
from signoff.testing.outside import Bank
from signoff.testing.scripted import Answer, ask_for
from signoff.testing.stores import memory_stores
from signoff.testing.world import World

ANA = Actor(id="ana")
BO = Actor(id="bo", roles=frozenset({"finance"}))

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

[[rules]]
tool = "refund"
when.cents.below = 100
required = false
"""


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
async def world(bank: Bank) -> AsyncIterator[World]:
    async def refund(order: str, cents: int) -> JsonObject:
        return bank.refund(order, cents)

    desk = Agent("desk", instructions="Serve.", tools=[define_tool(refund, kind="action")])

    def script_for(cents: int) -> list[Answer]:
        return [ask_for("refund", {"order": "A1", "cents": cents}), "Done."]

    world = World(
        memory_stores(),
        durable=False,
        script={"small": script_for(500), "large": script_for(6000), "huge": script_for(99_000)},
        agents=[desk],
        policy=RulesPolicy.from_toml(RULES),
    )
    await world.start()
    yield world
    await world.close()


async def test_the_requester_may_not_edit_into_what_only_finance_may_approve(world: World, bank: Bank) -> None:
    await world.send("small")
    card = await world.card()

    with pytest.raises(Forbidden, match="'finance' must approve"):
        await world.approve(card, by=ANA, arguments={"order": "A1", "cents": 5001})
    assert bank.payments == []
    assert (await world.call(card)).is_open

    await world.approve(card, by=ANA, arguments={"order": "A1", "cents": 5000})
    await world.completed()
    assert [payment.cents for payment in bank.payments] == [5000]


async def test_nobody_edits_alone_into_or_out_of_what_takes_two(world: World, bank: Bank) -> None:
    await world.send("large")
    card = await world.card()
    with pytest.raises(InvalidInput, match="more than one person"):
        await world.approve(card, by=BO, arguments={"order": "A1", "cents": 99_000})

    await world.send("huge")
    quorum_card = await world.card()
    with pytest.raises(InvalidInput, match="more than one person"):
        await world.approve(quorum_card, by=BO, arguments={"order": "A1", "cents": 500})

    assert bank.payments == []


async def test_who_approved_the_card_may_edit_into_what_needs_nobody(world: World, bank: Bank) -> None:
    await world.send("large")
    card = await world.card()

    with pytest.raises(Forbidden):
        await world.approve(card, by=ANA, arguments={"order": "A1", "cents": 1})
    await world.approve(card, by=BO, arguments={"order": "A1", "cents": 1})
    await world.completed()

    assert [payment.cents for payment in bank.payments] == [1]


async def test_who_approved_the_card_may_edit_into_what_the_requester_may_approve(world: World, bank: Bank) -> None:
    await world.send("large")
    card = await world.card()

    await world.approve(card, by=BO, arguments={"order": "A1", "cents": 500})
    await world.completed()

    assert [payment.cents for payment in bank.payments] == [500]
