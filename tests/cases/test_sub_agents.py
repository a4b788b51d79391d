"""Cases 6, and case 49: sub-agents."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from signoff import Agent, Delegate, define_tool
from signoff.domain.call import CallStatus
from signoff.domain.run import Run, RunStatus
from signoff.errors import RunNotActive
from signoff.ports.engine import EngineLimits
from signoff.ports.model import AssistantMessage, CallResult
from signoff.ports.store import Tx
from signoff.service.threads import fork_thread
from signoff.testing.outside import Bank, Gate
from signoff.testing.scripted import ask_for, boom, turn
from signoff.testing.world import ANA, Script, World
from signoff.turn.delivery import DIED_TEXT, STOPPED_TEXT
from tests.cases.conftest import NewWorld
from tests.cases.desk import Archive, refund_tool

LEASE = timedelta(minutes=1)


def office(*tools: object, detached: bool = False) -> list[Agent]:
    """A desk that hands tasks to a clerk, who has the tools."""
    clerk = Agent("clerk", instructions="Do the work.", tools=tools)
    delegates = [Delegate(clerk), *([Delegate(clerk, detached=True)] if detached else [])]
    return [Agent("desk", instructions="Serve the customer.", delegates_to=delegates), clerk]


REFUND_BY_CLERK: Script = {
    "Please.": [ask_for("ask_clerk", {"task": "Refund A1."}), "The clerk has refunded it."],
    "Refund A1.": [ask_for("refund", {"order": "A1"}), "Refunded."],
    "Hello.": ["Hello!"],
}


async def children(world: World, run_id: str) -> list[Run]:
    """The runs below a run."""
    return await world.read(lambda tx: tx.children_of(run_id))


async def child_ended(world: World, run_id: str, number: int = 0) -> Run:
    """A child, once it has ended."""

    def look(tx: Tx) -> Run | None:
        found = tx.children_of(run_id)
        return found[number] if len(found) > number and found[number].status.is_terminal else None

    return await world.until(look, f"the end of child {number} of {run_id}")


async def test_c37_the_parents_stream_is_enough_to_decide_a_childs_card(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(agents=office(refund_tool(bank)), script=REFUND_BY_CLERK)
    run = await world.send("Please.")

    shown = (await world.streamed("approval-requested", run)).frame
    (child,) = await children(world, run.run_id)
    assert (shown["runId"], shown["toolName"], shown["input"]) == (child.id, "refund", {"order": "A1", "cents": 500})
    card = await world.card(run)
    assert card.id == shown["id"]
    await world.approve(card)
    await world.completed(run)

    assert bank.orders == ["A1"]
    assert (await world.run(child.id)).status is RunStatus.COMPLETED
    (delegation,) = await world.calls(run)
    assert (delegation.status, delegation.output) == (CallStatus.COMPLETED, "Refunded.")
    told = world.prompts[-1].messages[-1]
    assert isinstance(told, CallResult)
    assert told.output == "Refunded."


async def test_c37_the_conversation_shows_what_sub_agents_call_inside_the_call_that_led_to_them(
    new_world: NewWorld, bank: Bank
) -> None:
    """Two levels down, while the card waits and afterwards, and in a copy of the conversation."""
    clerk = Agent("clerk", instructions="Do the work.", tools=[refund_tool(bank)])
    head = Agent("head", instructions="Pass it on.", delegates_to=[clerk])
    world = await new_world(
        agents=[Agent("desk", instructions="Serve the customer.", delegates_to=[head]), head, clerk],
        script={
            "Please.": [ask_for("ask_head", {"task": "Pass on."}), "Done."],
            "Pass on.": [ask_for("ask_clerk", {"task": "Refund A1."}), "Passed on."],
            "Refund A1.": [ask_for("refund", {"order": "A1"}), "Refunded."],
        },
    )
    run = await world.send("Please.")
    card = await world.card(run)

    async def shown(thread_id: str) -> list[tuple[str, str | None, CallStatus]]:
        view = await world.thread(thread_id)
        calls = [call for message in view.messages for call in view.calls.get(message.id, [])]
        names = {call.id: call.name for call in calls}
        return [(call.name, names.get(call.parent_call_id or ""), call.status) for call in calls]

    waiting = await shown(run.thread_id)
    await world.approve(card)
    await world.completed(run)
    last = (await world.thread(run)).messages[-1]
    fork = await fork_thread(world.app.deps, ANA, run.thread_id, last.id)

    assert waiting == [
        ("ask_head", None, CallStatus.RUNNING),
        ("ask_clerk", "ask_head", CallStatus.RUNNING),
        ("refund", "ask_clerk", CallStatus.PENDING),
    ]
    done = [(name, parent, CallStatus.COMPLETED) for name, parent, _ in waiting]
    assert await shown(run.thread_id) == done
    assert await shown(fork.id) == done


async def test_c38_a_parked_child_goes_on_where_it_stopped(durable_world: NewWorld, bank: Bank) -> None:
    archive = Archive()
    world = await durable_world(
        agents=office(archive.tool, refund_tool(bank)),
        script={
            "Please.": [ask_for("ask_clerk", {"task": "Refund A1."}), "Done."],
            "Refund A1.": [
                turn(ask_for("get_order", {"order": "A1"}), ask_for("refund", {"order": "A1"})),
                "Refunded.",
            ],
        },
    )
    run = await world.send("Please.")
    card = await world.card(run)
    await world.parked(card.run_id)

    await world.restart(after=LEASE)
    await world.approve(card)
    await world.completed(run)

    assert archive.reads == 1
    assert bank.orders == ["A1"]
    assert len(world.prompts) == 4  # two of the desk, two of the clerk


async def test_c39_waiting_parents_hold_no_slot(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(
        agents=office(refund_tool(bank)),
        script=REFUND_BY_CLERK,
        engine_limits=EngineLimits(concurrency={"runs": 1, "llm": 1, "tools": 1}),
    )
    runs = [await world.send("Please.") for _ in range(3)]
    for run in runs:
        await world.approve(await world.card(run))
    for run in runs:
        await world.completed(run)

    assert bank.orders == ["A1"] * 3


async def test_c40_an_agent_that_delegates_to_itself_is_stopped(new_world: NewWorld) -> None:
    world = await new_world(
        agents=[Agent("desk", instructions="Delegate.", delegates_to=["desk"])],
        script=lambda prompt: (
            "I do it myself."
            if isinstance(prompt.messages[-1], CallResult)
            else ask_for("ask_desk", {"task": "Do it."})
        ),
    )
    run = await world.send("Do it.")
    await world.completed(run)

    assert await children(world, run.run_id) == []
    (call,) = await world.calls(run)
    assert call.status is CallStatus.FAILED
    assert "already at work" in str(call.error)


async def test_c40_a_chain_of_agents_is_as_long_as_the_limit(new_world: NewWorld) -> None:
    names = [f"agent{n}" for n in range(10)]
    agents = [Agent(name, instructions="Delegate.", delegates_to=[following]) for name, following in pairwise(names)]
    world = await new_world(
        agents=[*agents, Agent(names[-1], instructions="Work.")],
        script=lambda prompt: (
            "Enough."
            if isinstance(prompt.messages[-1], CallResult) or not prompt.tools
            else ask_for(prompt.tools[0].name, {"task": "Go on."})
        ),
    )
    run = await world.send("Go on.")
    await world.completed(run)

    depth, at = 0, run.run_id
    while found := await children(world, at):
        (child,) = found
        depth, at = depth + 1, child.id
    assert depth == 5
    (last,) = await world.calls(at)
    assert "limited to 5 levels" in str(last.error)


async def test_c40_a_turn_starts_so_many_children_and_no_more(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        agents=office(refund_tool(bank)),
        script={
            "Please.": [turn(*(ask_for("ask_clerk", {"task": "Hello."}) for _ in range(100))), "Done."],
            "Hello.": ["Hello!"],
        },
    )
    run = await world.send("Please.")
    await world.completed(run)

    assert len(await children(world, run.run_id)) == 16
    statuses = await world.statuses(run)
    assert (statuses.count(CallStatus.COMPLETED), statuses.count(CallStatus.FAILED)) == (16, 84)
    refused = [call for call in await world.calls(run) if call.status is CallStatus.FAILED]
    assert "at most 16" in str(refused[0].error)


async def test_c41_a_cancel_reaches_linked_children_and_spares_detached_ones(new_world: NewWorld, bank: Bank) -> None:
    gate = Gate()

    async def work() -> str:
        await gate.passage()
        return "worked"

    world = await new_world(
        agents=office(define_tool(work), refund_tool(bank), detached=True),
        script={
            "Please.": [
                turn(ask_for("start_clerk", {"task": "Work."}), ask_for("ask_clerk", {"task": "Refund A1."})),
                "Done.",
            ],
            "Work.": [ask_for("work"), "It is done."],
            "Refund A1.": [ask_for("refund", {"order": "A1"}), "Refunded."],
        },
    )
    run = await world.send("Please.")
    card = await world.card(run)
    await gate.reached()
    await world.parked(card.run_id)

    await world.cancel(run)
    gate.open()
    await world.ended(run)
    rows = {child.detached: child for child in await children(world, run.run_id)}
    await world.completed(rows[True].id)

    assert (await world.run(rows[False].id)).status is RunStatus.CANCELLED
    assert (await world.call(card)).status is CallStatus.CANCELLED
    assert await world.statuses(run) == [CallStatus.COMPLETED, CallStatus.CANCELLED]
    with pytest.raises(RunNotActive):
        await world.approve(card)
    # What the detached one said arrives in the conversation that started it.
    assert "It is done." in [message.content for message in (await world.thread(run)).messages]
    assert bank.orders == []


async def test_c41_the_stream_ends_after_the_calls_of_a_sub_agent_that_is_still_at_work(
    new_world: NewWorld, bank: Bank
) -> None:
    """The parent is parked and ends at once; the clerk has a tool under way and a card open."""
    gate = Gate()

    async def look_up() -> str:
        await gate.passage()
        return "looked up"

    world = await new_world(
        agents=office(define_tool(look_up), refund_tool(bank)),
        script={
            "Please.": [ask_for("ask_clerk", {"task": "Refund A1."}), "Done."],
            "Refund A1.": [turn(ask_for("look_up"), ask_for("refund", {"order": "A1"})), "Refunded."],
        },
    )
    run = await world.send("Please.")
    card = await world.card(run)
    await gate.reached()
    (child,) = await children(world, run.run_id)

    await world.cancel(run)
    gate.open()
    shown = [numbered.frame for numbered in await world.watch(run)]
    await child_ended(world, run.run_id)

    announced = [each["id"] for each in shown if each["kind"] == "tool-input-available"]
    assert sorted(str(each["id"]) for each in shown if str(each["kind"]).startswith("tool-output")) == sorted(
        str(call_id) for call_id in announced
    )
    assert [each["kind"] for each in shown][-2:] == ["cancelled", "done"]
    looked_up, refund = await world.calls(child.id)
    assert refund.id == card.id
    assert (looked_up.status, looked_up.output) == (CallStatus.COMPLETED, "looked up")
    assert refund.status is CallStatus.CANCELLED
    assert bank.orders == []


async def test_c41_a_detached_agents_calls_name_the_call_that_started_it(new_world: NewWorld) -> None:
    archive = Archive()
    world = await new_world(
        agents=office(archive.tool, detached=True),
        script={
            "Please.": [ask_for("start_clerk", {"task": "Look."}), "Started."],
            "Look.": [ask_for("get_order", {"order": "A1"}), "Looked."],
        },
    )
    run = await world.send("Please.")
    await world.completed(run)
    clerk = await child_ended(world, run.run_id)

    (start,) = [call for call in await world.calls(run) if call.name == "start_clerk"]
    announced = [each.frame for each in await world.frames(clerk.id) if "name" in each.frame]
    assert [(each["kind"], each.get("parentId")) for each in announced] == [
        ("tool-input-start", start.id),
        ("tool-input-available", start.id),
    ]


async def test_c41_a_detached_agent_that_cannot_finish_says_so_in_the_conversation(
    new_world: NewWorld, bank: Bank
) -> None:
    world = await new_world(
        agents=office(refund_tool(bank), detached=True),
        script={
            "Please.": [ask_for("start_clerk", {"task": "Refund A1."}), "Started."],
            "Refund A1.": [ask_for("refund", {"order": "A1"}), boom("the model went away")],
            "Later.": ["Hm."],
        },
    )
    run = await world.send("Please.")
    await world.completed(run)
    await world.approve(await world.card((await children(world, run.run_id))[0].id))
    clerk = await child_ended(world, run.run_id)

    assert clerk.status is RunStatus.FAILED
    last = (await world.thread(run)).messages[-1]
    assert (last.agent_name, last.run_id, last.content) == ("clerk", clerk.id, DIED_TEXT)
    later = await world.send("Later.", thread=run.thread_id)
    await world.completed(later)
    read = [message for message in world.prompts[-1].messages if isinstance(message, AssistantMessage)]
    assert DIED_TEXT in [message.text for message in read]


async def test_c41_a_detached_agent_that_is_stopped_leaves_what_it_did(new_world: NewWorld, bank: Bank) -> None:
    archive = Archive()
    world = await new_world(
        agents=office(archive.tool, refund_tool(bank), detached=True),
        script={
            "Please.": [ask_for("start_clerk", {"task": "Refund A1."}), "Started."],
            "Refund A1.": [ask_for("get_order", {"order": "A1"}), ask_for("refund", {"order": "A1"})],
        },
    )
    run = await world.send("Please.")
    await world.completed(run)
    (clerk,) = await children(world, run.run_id)
    await world.card(clerk.id)
    await world.parked(clerk.id)

    await world.cancel(clerk.id)
    await world.ended(clerk.id)

    view = await world.thread(run)
    said = [message for message in view.messages if message.run_id == clerk.id]
    assert [call.name for message in said for call in view.calls.get(message.id, [])] == ["get_order", "refund"]
    assert said[-1].content == STOPPED_TEXT


async def test_c41_what_a_sub_agent_started_answers_in_the_conversation_that_a_person_opens(
    new_world: NewWorld,
) -> None:
    gate = Gate()

    async def look() -> str:
        await gate.passage()
        return "seen"

    clerk = Agent("clerk", instructions="Do the work.", tools=[define_tool(look)])
    head = Agent("head", instructions="Pass it on.", delegates_to=[Delegate(clerk, detached=True)])
    world = await new_world(
        agents=[Agent("desk", instructions="Serve.", delegates_to=[head]), head, clerk],
        script={
            "Please.": [ask_for("ask_head", {"task": "Pass on."}), "Passed on."],
            "Pass on.": [ask_for("start_clerk", {"task": "Look."}), "Started."],
            "Look.": [ask_for("look"), "Looked."],
        },
    )
    run = await world.send("Please.")
    await world.completed(run)
    gate.open()
    (child,) = await children(world, run.run_id)
    await child_ended(world, child.id)

    view = await world.thread(run)
    assert [message.content for message in view.messages if message.agent_name == "clerk"] == ["", "Looked."]
    shown = [call.name for message in view.messages for call in view.calls.get(message.id, [])]
    assert sorted(shown) == ["ask_head", "look", "start_clerk"]


async def test_c42_a_tool_that_cancels_itself_cancels_nobody_else(new_world: NewWorld) -> None:
    async def give_up() -> str:
        raise asyncio.CancelledError

    archive = Archive()
    world = await new_world(
        define_tool(give_up),
        archive.tool,
        script=[turn(ask_for("give_up"), ask_for("get_order", {"order": "A"})), "Ok."],
    )
    run = await world.send()
    await world.completed(run)

    assert await world.statuses(run) == [CallStatus.FAILED, CallStatus.COMPLETED]


async def test_c42_a_cancelled_child_is_an_outcome_of_its_call(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(agents=office(refund_tool(bank)), script=REFUND_BY_CLERK)
    run = await world.send("Please.")
    card = await world.card(run)
    await world.parked(card.run_id)

    await world.cancel(card.run_id)
    await world.completed(run)

    (delegation,) = await world.calls(run)
    assert delegation.status is CallStatus.FAILED
    assert "cancelled" in str(delegation.error)
    assert bank.orders == []


async def test_c49_a_decision_reaches_the_run_that_asked_whatever_the_thread_points_at(
    new_world: NewWorld, bank: Bank
) -> None:
    world = await new_world(
        agents=[
            Agent(
                "desk",
                instructions="Serve.",
                tools=[refund_tool(bank)],
                delegates_to=[Delegate("clerk", detached=True)],
            ),
            Agent("clerk", instructions="Work.", tools=[refund_tool(bank)]),
        ],
        script={
            "In the background.": [ask_for("start_clerk", {"task": "Refund A1."}), "Started."],
            "Refund A1.": [ask_for("refund", {"order": "A1"}), "Refunded A1."],
            "Now.": [ask_for("refund", {"order": "A2"}), "Refunded A2."],
        },
    )
    first = await world.send("In the background.")
    await world.completed(first)
    (clerk,) = await children(world, first.run_id)
    older = await world.card(clerk.id)
    second = await world.send("Now.", thread=first.thread_id)
    newer = await world.card(second)

    await world.approve(older)
    await world.completed(clerk.id)

    assert bank.orders == ["A1"]
    assert (await world.call(newer)).status is CallStatus.PENDING
    await world.approve(newer)
    await world.completed(second)
    assert bank.orders == ["A1", "A2"]
