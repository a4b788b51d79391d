"""Cases 7: cancel."""

import asyncio

import pytest

from signoff import Actor, Event, Requirement
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.call import Call, CallStatus
from signoff.domain.run import RunStatus
from signoff.domain.thread import Thread
from signoff.errors import NotFound, RunNotActive
from signoff.ports.model import Prompt
from signoff.ports.notifier import Notification
from signoff.ports.policy import ToolView
from signoff.testing.outside import Bank, Gate
from signoff.testing.scripted import Answer, ask_for, turn, wait_for
from signoff.testing.world import Script
from tests.cases.conftest import NewWorld
from tests.cases.desk import Archive, desk, gated_refund_tool, refund_tool

ONE_REFUND: Script = {"Refund.": [ask_for("refund", {"order": "A1"}), "Done."], "Hello.": ["Hello!"]}


async def test_c43_cancelling_a_parked_run_frees_all_it_held(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send("Refund.")
    card = await world.card(run)
    await world.parked(run)

    await world.cancel(run)

    assert (await world.run(run)).status is RunStatus.CANCELLED
    assert (await world.call(card)).status is CallStatus.CANCELLED
    assert (await world.inbox()).total == 0
    await world.completed(await world.send("Hello.", thread=run.thread_id))
    with pytest.raises(RunNotActive):
        await world.approve(card)
    with pytest.raises(NotFound):
        await world.cancel(run)
    assert bank.orders == []
    assert [frame.frame["kind"] for frame in await world.frames(run)][-3:] == ["tool-output-error", "cancelled", "done"]


async def test_c44_nothing_begins_after_a_cancel(new_world: NewWorld, bank: Bank) -> None:
    speaks = asyncio.Event()
    archive = Archive()
    world = await new_world(
        archive.tool,
        refund_tool(bank),
        script=[
            turn(
                "Let me see.",
                wait_for(speaks),
                ask_for("get_order", {"order": "A1"}),
                ask_for("refund", {"order": "A1"}),
            ),
            "Done.",
        ],
    )
    run = await world.send()
    await world.streamed("text", run)

    await world.cancel(run)
    speaks.set()
    await world.ended(run)

    assert (await world.run(run)).status is RunStatus.CANCELLED
    assert (archive.reads, bank.orders) == (0, [])
    assert await world.calls(run) == []
    assert [frame.frame["kind"] for frame in await world.watch(run)][-2:] == ["cancelled", "done"]
    assert len(world.prompts) == 1


async def test_c44_a_tool_under_way_is_recorded_and_is_the_last_one(new_world: NewWorld, bank: Bank) -> None:
    gate, archive = Gate(), Archive()
    world = await new_world(
        archive.tool,
        gated_refund_tool(bank, gate),
        script=[ask_for("refund", {"order": "A1"}), ask_for("get_order", {"order": "A1"}), "Done."],
    )
    run = await world.send()
    await world.approve(await world.card(run))
    await gate.reached()

    await world.cancel(run)
    gate.open()
    await world.ended(run)

    assert (await world.run(run)).status is RunStatus.CANCELLED
    assert (bank.orders, archive.reads) == (["A1"], 0)
    (call,) = await world.calls(run)
    assert (call.status, call.output) == (CallStatus.COMPLETED, {"receipt": 1, "order": "A1", "cents": 500})
    assert len(world.prompts) == 1


async def test_c44_a_no_that_came_before_the_cancel_stays_a_no(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send("Refund.")
    card = await world.card(run)
    await world.parked(run)

    await asyncio.gather(world.reject(card, "no"), world.cancel(run))
    await world.ended(run)

    call = await world.settled(card)
    assert (call.status, call.output) == (CallStatus.REJECTED, {"rejected": True, "reason": "no"})
    assert "tool-output-denied" in [frame.frame["kind"] for frame in await world.frames(run)]


class Broken(DefaultPolicy):
    """Everything raises once the test says so: model, policy, notifier and subscriber."""

    def __init__(self) -> None:
        self.is_broken = False

    def check(self) -> None:
        """Raise if broken."""
        if self.is_broken:
            raise RuntimeError("broken")

    def script(self, prompt: Prompt) -> Answer:
        """What the model says."""
        self.check()
        return ask_for("refund", {"order": "A1"})

    def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        self.check()
        return Requirement()

    def can_decide(self, decider: Actor, call: Call) -> bool:
        """See `ports.policy.ApprovalPolicy`."""
        self.check()
        return True

    async def notify(self, notification: Notification) -> None:
        """See `ports.notifier.Notifier`."""
        self.check()

    def hear(self, event: Event) -> None:
        """A subscriber."""
        self.check()


async def test_c45_cancel_needs_nothing_but_rows(new_world: NewWorld, bank: Bank) -> None:
    broken = Broken()
    world = await new_world(refund_tool(bank), script=broken.script, policy=broken, notifiers=[broken])
    world.app.events.subscribe(broken.hear)
    run = await world.send()
    card = await world.card(run)

    broken.is_broken = True
    await world.cancel(run)

    assert (await world.ended(run)).status is RunStatus.CANCELLED
    assert (await world.call(card)).status is CallStatus.CANCELLED
    assert bank.orders == []


async def test_c45_cancel_works_where_the_agent_is_gone(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send("Refund.")
    card = await world.card(run)
    await world.parked(run)

    await world.restart(agents=[desk()])
    await world.cancel(run)

    assert (await world.run(run)).status is RunStatus.CANCELLED
    assert (await world.call(card)).status is CallStatus.CANCELLED
