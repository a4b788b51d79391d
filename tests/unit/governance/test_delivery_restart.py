"""Notifications of a durable turn, over the death of the process that should deliver them."""

import asyncio
from pathlib import Path

from signoff import Agent, Requirement, define_tool
from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import JsonObject
from signoff.governance.delivery import HELD
from signoff.ports.notifier import Notification
from signoff.testing.outside import Bank
from signoff.testing.scripted import ask_for
from signoff.testing.stores import sql_stores
from signoff.testing.world import World

BO = Actor(id="bo", roles=frozenset({"finance"}))


class Mailbox:
    """Takes notifications once it is `open`."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.tried = asyncio.Event()
        self.open = asyncio.Event()
        self.told: list[Notification] = []
        if is_open:
            self.open.set()

    async def notify(self, notification: Notification) -> None:
        self.tried.set()
        await self.open.wait()
        self.told.append(notification)


async def test_a_card_is_told_of_although_its_process_died_telling(tmp_path: Path) -> None:
    bank = Bank()

    async def refund(order: str) -> JsonObject:
        return bank.refund(order, 500)

    approval = Requirement(approver="finance")
    desk = Agent("desk", instructions="Serve.", tools=[define_tool(refund, kind="action", approval=approval)])
    first, second = Mailbox(is_open=False), Mailbox()
    world = World(
        sql_stores(f"sqlite:///{tmp_path}/signoff.db"),
        durable="strict",
        script=[ask_for("refund", {"order": "A1"}), "Done."],
        agents=[desk],
        notifiers=[first],
    )
    await world.start()
    await world.send()
    card = await world.card()
    async with asyncio.timeout(5):
        await first.tried.wait()

    await world.restart(after=HELD, notifiers=[second])
    async with asyncio.timeout(5):
        await second.tried.wait()
    await world.approve(card, by=BO)
    await world.completed()
    far = world.clock.now() + 10 * HELD
    await world.until(lambda tx: True if not tx.due_outbox(far, limit=1) else None, "an empty outbox")
    await world.close()

    assert first.told == []
    assert [(told.kind, told.call_id) for told in second.told] == [("requested", card.id), ("settled", card.id)]
    assert second.told[1].payload["status"] == "completed"
    assert bank.orders == ["A1"]
