"""Cases 5: time."""

from datetime import timedelta
from pathlib import Path

import pytest

from signoff import Requirement, Signoff, ToolContext, define_tool
from signoff.adapters.stores.sql import SqlStore
from signoff.domain.audit import AuditKind
from signoff.domain.call import CallStatus
from signoff.errors import Expired
from signoff.service.decide import DecisionRequest, Verb
from signoff.service.read import my_cards
from signoff.testing.clock import FakeIds
from signoff.testing.outside import Bank, Gate, MailServer
from signoff.testing.scripted import ask_for, turn
from signoff.testing.world import ANA, Script
from tests.cases.conftest import DATABASE, NewWorld
from tests.cases.desk import HoldsUp, desk, mail_tool, refund_tool

ONE_REFUND: Script = [ask_for("refund", {"order": "A1"}), "Done."]
TTL = timedelta(seconds=60)
MINUTE = Requirement(ttl=TTL)


async def test_c32_a_deadline_outlives_restarts(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank, approval=MINUTE), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    deadline = world.clock.now() + TTL

    for seconds in (20, 20, 19):
        await world.parked(run)
        await world.restart(after=timedelta(seconds=seconds))
        assert (await world.call(card)).expires_at == card.expires_at == deadline
        assert (await world.call(card)).status is CallStatus.PENDING
    world.clock.advance(timedelta(seconds=1))
    await world.completed(run)

    assert world.clock.now() == deadline
    assert await world.statuses(run) == [CallStatus.EXPIRED]
    assert bank.orders == []


async def test_c32_a_deadline_that_passed_while_nothing_ran_is_kept(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank, approval=MINUTE), script=ONE_REFUND)
    run = await world.send()
    await world.card(run)
    await world.parked(run)

    await world.restart(after=timedelta(hours=1))
    await world.completed(run)

    assert await world.statuses(run) == [CallStatus.EXPIRED]


async def test_c33_the_run_wakes_by_itself(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank, approval=MINUTE), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    world.clock.advance(TTL)
    await world.completed(run)

    assert await world.statuses(run) == [CallStatus.EXPIRED]
    assert [frame.frame.get("status") for frame in await world.frames(run) if "status" in frame.frame] == ["expired"]
    assert "expired" in str(world.prompts[-1].messages[-1])
    assert (await world.inbox()).cards == []
    assert bank.orders == []
    with pytest.raises(Expired):
        await world.approve(card)


async def test_c33_a_decision_checks_the_deadline_where_nothing_sweeps(
    durable_world: NewWorld, bank: Bank, tmp_path: Path
) -> None:
    world = await durable_world(refund_tool(bank, approval=MINUTE), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)
    world.kill()
    world.clock.advance(TTL)

    # A process that serves decisions and drives nothing: its store is open, its runner is not.
    store = SqlStore(f"sqlite:///{tmp_path / DATABASE}")
    app = Signoff(agents=[desk()], database=store, clock=world.clock, ids=FakeIds(1000))
    await store.open()
    try:
        assert (await my_cards(app.deps, ANA)).total == 0
        with pytest.raises(Expired):
            await app.decide(ANA, DecisionRequest(call_id=card.id, verb=Verb.APPROVE))
        settled = await store.read(lambda tx: tx.call(card.id))
    finally:
        await store.close()

    assert settled is not None
    assert settled.status is CallStatus.EXPIRED
    assert bank.orders == []


@pytest.mark.parametrize("late", [timedelta(minutes=15), timedelta(minutes=15, seconds=1), timedelta(hours=1)], ids=str)
async def test_c34_a_decision_in_time_is_good_for_fifteen_minutes_after_the_deadline(
    new_world: NewWorld, bank: Bank, mail: MailServer, late: timedelta
) -> None:
    gate = Gate()
    world = await new_world(
        refund_tool(bank, approval=MINUTE),
        mail_tool(mail),
        policy=HoldsUp("send_mail", gate),
        script=[turn(ask_for("refund", {"order": "A1"}), ask_for("send_mail", {"to": "b"})), "Done."],
    )
    run = await world.send()
    card = await world.card(run)
    await gate.reached()

    world.clock.advance(TTL - timedelta(seconds=1))
    await world.approve(card)
    world.clock.advance(late)
    gate.open()
    call = await world.settled(card)

    in_time = late < timedelta(minutes=15, seconds=1)
    assert bank.orders == (["A1"] if in_time else [])
    assert call.status is (CallStatus.COMPLETED if in_time else CallStatus.FAILED)
    if not in_time:
        assert "too old" in str(call.error)
    await world.reject(await world.card(run))
    await world.completed(run)


async def test_c35_a_late_approval_is_no_approval_in_the_audit(new_world: NewWorld, bank: Bank) -> None:
    world = await new_world(refund_tool(bank, approval=MINUTE), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    world.clock.advance(TTL)
    await world.completed(run)

    with pytest.raises(Expired) as refusal:
        await world.approve(card)

    assert refusal.value.expires_at == card.expires_at
    assert "expired at 2026-01-01T00:01:00" in str(refusal.value)
    kinds = [entry.kind for entry in await world.audit(card)]
    assert kinds == [AuditKind.REQUESTED, AuditKind.EXPIRED, AuditKind.REFUSED]


async def test_c36_a_tools_limit_does_not_run_while_a_person_thinks(new_world: NewWorld) -> None:
    async def book(ctx: ToolContext) -> str:
        outcome = await ctx.ask([{"id": "name", "prompt": "Whose name?", "input": {"type": "text"}}])
        return outcome.answers["name"][0]

    world = await new_world(define_tool(book, timeout=timedelta(seconds=1)), script=[ask_for("book"), "Done."])
    run = await world.send()
    card = await world.card(run)

    world.clock.advance(timedelta(minutes=10))
    await world.answer(card, {"name": ["Ana"]})
    await world.completed(run)

    (call,) = [call for call in await world.calls(run) if call.name == "book"]
    assert (call.status, call.output) == (CallStatus.COMPLETED, "Ana")
