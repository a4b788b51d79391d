"""Cases 1: decisions find their call."""

import pytest

from signoff import Verb, ask
from signoff.domain.call import CallStatus
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import AlreadyDecided, InvalidInput, WrongKind
from signoff.ports.model import CallResult
from signoff.testing.outside import Bank, MailServer
from signoff.testing.scripted import ask_for, turn
from tests.cases.conftest import NewWorld
from tests.cases.desk import mail_tool, refund_tool
from tests.cases.web import JSON, browser

_SIZES: JsonObject = {
    "questions": [
        {
            "id": "size",
            "prompt": "Which size?",
            "options": [{"value": "m", "label": "Medium"}, {"value": "l", "label": "Large"}],
            "defaults": ["m"],
        }
    ]
}


async def test_c01_two_runs_with_the_same_provider_id_do_not_share_a_card(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank),
        script={
            "refund A1": [ask_for("refund", {"order": "A1"}, id="call_1"), "Done."],
            "refund A2": [ask_for("refund", {"order": "A2"}, id="call_1"), "Done."],
        },
    )
    first, second = await world.send("refund A1"), await world.send("refund A2")
    card, other = await world.card(first), await world.card(second)

    await world.approve(card)
    await world.completed(first)

    assert card.provider_id == other.provider_id == "call_1"
    assert bank.orders == ["A1"]
    assert (await world.call(other)).status is CallStatus.PENDING
    await world.approve(other)
    await world.completed(second)
    assert bank.orders == ["A1", "A2"]


async def test_c02_a_decision_on_a_settled_card_moves_nothing(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank),
        script=[ask_for("refund", {"order": "A1"}), ask_for("refund", {"order": "A2"}), "Done."],
    )
    run = await world.send()
    settled = await world.card(run)
    await world.reject(settled, "not that one")
    await world.settled(settled)
    waiting = await world.card(run)

    with pytest.raises(AlreadyDecided) as refusal:
        await world.approve(settled)

    assert refusal.value.status == "rejected"
    assert (await world.call(waiting)).status is CallStatus.PENDING
    assert bank.orders == []
    await world.approve(waiting)
    await world.completed(run)
    assert bank.orders == ["A2"]


@pytest.mark.parametrize("order", ["reject first", "approve first"])
async def test_c03_two_cards_of_one_turn_are_decided_in_any_order(
    new_world: NewWorld, bank: Bank, mail: MailServer, order: str
) -> None:
    world = await new_world(
        refund_tool(bank),
        mail_tool(mail),
        script=[turn(ask_for("refund", {"order": "A"}, id="a"), ask_for("send_mail", {"to": "b"}, id="b")), "Done."],
    )
    run = await world.send()
    to_run, to_refuse = await world.cards(2, run)

    if order == "reject first":
        await world.reject(to_refuse)
        await world.settled(to_refuse)
        await world.approve(to_run)
    else:
        await world.approve(to_run)
        await world.settled(to_run)
        await world.reject(to_refuse)
    await world.completed(run)

    assert (bank.orders, mail.sent) == (["A"], [])
    results = [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert [(result.name, result.is_error) for result in results] == [("refund", False), ("send_mail", True)]


@pytest.mark.parametrize("first", ["reject", "approve"])
async def test_c03_a_kill_between_the_two_decisions_changes_nothing(
    durable_world: NewWorld, bank: Bank, mail: MailServer, first: str
) -> None:
    world = await durable_world(
        refund_tool(bank),
        mail_tool(mail),
        script=[turn(ask_for("refund", {"order": "A"}, id="a"), ask_for("send_mail", {"to": "b"}, id="b")), "Done."],
    )
    run = await world.send()
    to_run, to_refuse = await world.cards(2, run)

    if first == "reject":
        await world.reject(to_refuse)
        await world.settled(to_refuse)
    else:
        await world.approve(to_run)
        await world.settled(to_run)
    await world.parked(run)
    await world.restart()
    if first == "reject":
        await world.approve(to_run)
    else:
        await world.reject(to_refuse)
    await world.completed(run)

    assert (bank.orders, mail.sent) == (["A"], [])
    results = [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert [(result.name, result.is_error) for result in results] == [("refund", False), ("send_mail", True)]


async def test_c04_each_call_of_a_batch_gets_one_outcome(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank),
        script=[turn(*(ask_for("refund", {"order": order}, id=order) for order in "ABC")), "Done."],
    )
    run = await world.send()
    a, b, c = await world.cards(3, run)

    await world.approve(a)
    await world.reject(b)
    await world.approve(c)
    await world.completed(run)

    assert sorted(bank.orders) == ["A", "C"]
    assert await world.statuses(run) == [CallStatus.COMPLETED, CallStatus.REJECTED, CallStatus.COMPLETED]
    results = [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert [result.id for result in results] == [a.id, b.id, c.id]


async def test_c05_only_the_explicit_word_approves(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=[ask_for("refund", {"order": "A1"}), "Done."])
    run = await world.send()
    card = await world.card(run)

    async with browser(world) as client:
        for body in ("{}", "null", '"maybe"', '{"approve": "false"}'):
            answer = await client.post("/tool-call/approve", content=body, headers=JSON)
            assert answer.status_code == 400, body
        for word in ("", ', "decision": null', ', "decision": "maybe"', ', "decision": true'):
            body = f'{{"decisions": [{{"toolCallId": "{card.id}"{word}}}]}}'
            answer = await client.post("/approvals/decide", content=body, headers=JSON)
            assert 400 in (answer.status_code, *(each["status"] for each in answer.json().get("results", []))), body

    assert (await world.call(card)).status is CallStatus.PENDING
    assert bank.orders == []
    await world.approve(card)
    await world.completed(run)
    assert bank.orders == ["A1"]


async def test_c06_a_run_parks_as_often_as_it_asks(new_world: NewWorld, bank: Bank) -> None:
    orders = ["A1", "A2", "A3", "A4"]
    world = await new_world(
        refund_tool(bank), script=[*(ask_for("refund", {"order": order}) for order in orders), "All done."]
    )
    run = await world.send()
    for order in orders:
        card = await world.card(run)
        assert card.arguments == {"order": order, "cents": 500}
        await world.approve(card)
        await world.settled(card)
    await world.completed(run)

    assert bank.orders == orders
    assert await world.statuses(run) == [CallStatus.COMPLETED] * 4


async def test_c06_a_kill_between_rounds_repeats_no_round(durable_world: NewWorld, bank: Bank) -> None:
    orders = ["A1", "A2", "A3", "A4"]
    world = await durable_world(
        refund_tool(bank), script=[*(ask_for("refund", {"order": order}) for order in orders), "All done."]
    )
    run = await world.send()
    for order in orders:
        card = await world.card(run)
        if order == "A3":
            await world.parked(run)
            await world.restart()
        await world.approve(card)
        await world.settled(card)
    await world.completed(run)

    assert bank.orders == orders
    assert await world.statuses(run) == [CallStatus.COMPLETED] * 4
    assert len(world.prompts) == 5


async def test_c07_a_rejection_says_that_a_person_declined_and_why(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=[ask_for("refund", {"order": "A1"}), "All right."])
    run = await world.send()
    card = await world.card(run)

    await world.reject(card, "not now")
    await world.completed(run)

    told = world.prompts[-1].messages[-1]
    assert isinstance(told, CallResult)
    assert told.is_error
    assert "A person declined" in str(told.output)
    assert "not now" in str(told.output)
    assert "do not make this call again" in str(told.output)
    frames = [frame.frame for frame in await world.frames(run) if frame.frame.get("id") == card.id]
    assert [frame["kind"] for frame in frames][-3:] == ["approval-settled", "tool-output-error", "tool-output-denied"]
    assert frames[-3]["status"] == "rejected"
    view = await world.thread(run)
    (call,) = [call for calls in view.calls.values() for call in calls]
    assert (call.status, call.decision_reason) == (CallStatus.REJECTED, "not now")
    assert call.output == {"rejected": True, "reason": "not now"}
    assert bank.orders == []


async def test_c07_the_model_that_never_takes_no_ends_at_its_step_limit(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=lambda prompt: ask_for("refund", {"order": "A1"}))
    run = await world.send()
    for _ in range(8):
        card = await world.card(run)
        await world.reject(card, "no")
        await world.settled(card)
    await world.completed(run)

    assert bank.orders == []
    assert len(world.prompts) == 8


async def test_c08_free_text_decides_nothing(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(
        refund_tool(bank),
        script={
            "two refunds": [
                turn(ask_for("refund", {"order": "A"}, id="a"), ask_for("refund", {"order": "B"}, id="b")),
                "Done.",
            ],
            "yes": ["Yes to what?"],
        },
    )
    chat = await world.send("yes")
    await world.completed(chat)
    run = await world.send("two refunds")
    cards = await world.cards(2, run)

    beside = await world.send("yes")
    await world.completed(beside)

    assert [(await world.call(card)).status for card in cards] == [CallStatus.PENDING] * 2
    assert bank.orders == []


async def test_c09_a_question_is_not_approved_into_a_crash(durable_world: NewWorld) -> None:
    world = await durable_world(ask, script=[ask_for("ask", _SIZES), "Thank you."])
    run = await world.send()
    card = await world.card(run)

    with pytest.raises(WrongKind):
        await world.decide(card, Verb.SETTLE, output={"answers": "none"})
    with pytest.raises(InvalidInput):
        await world.answer(card, {"size": ["xxl"]})
    await world.parked(run)
    await world.restart()
    await world.answer(card, {"size": ["l"]})
    await world.completed(run)

    (call,) = await world.calls(run)
    assert call.status is CallStatus.COMPLETED
    assert isinstance(call.output, dict)
    assert call.output["answers"] == {"size": ["l"]}


async def test_c09_an_action_is_not_answered(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank), script=[ask_for("refund", {"order": "A1"}), "Done."])
    run = await world.send()
    card = await world.card(run)

    with pytest.raises(WrongKind):
        await world.answer(card, {"anything": ["yes"]})
    with pytest.raises(WrongKind):
        await world.skip(card)

    assert (await world.call(card)).status is CallStatus.PENDING
    assert bank.orders == []
