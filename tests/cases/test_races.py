"""Cases 2: races."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from signoff import Requirement
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.audit import AuditKind
from signoff.domain.call import CallStatus
from signoff.domain.thread import Role
from signoff.errors import AlreadyDecided, Expired, RunActive, RunNotActive
from signoff.ports.engine import EngineLimits
from signoff.ports.store import Tx
from signoff.service.decide import Decided
from signoff.service.send import Started
from signoff.testing.outside import Bank, Gate, MailServer
from signoff.testing.scripted import ask_for, turn
from signoff.testing.world import ProcessDied, Script
from tests.cases.conftest import DATABASE, DURABLE, INLINE, NewWorld, Runner
from tests.cases.desk import HoldsUp, desk, gated_refund_tool, mail_tool, refund_tool
from tests.cases.faults import KillAfter, refusing_inserts

ONE_REFUND: Script = [ask_for("refund", {"order": "A1"}), "Done."]
TTL = timedelta(seconds=60)


async def test_c10_of_twenty_approvals_one_wins(any_world: NewWorld, bank: Bank) -> None:
    world = await any_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)

    answers = await asyncio.gather(*(world.approve(card) for _ in range(20)), return_exceptions=True)
    await world.completed(run)

    refused = [answer for answer in answers if isinstance(answer, AlreadyDecided | RunNotActive)]
    assert [type(answer) for answer in answers].count(Decided) == 1
    assert len(refused) == 19
    assert bank.orders == ["A1"]
    assert [entry.kind for entry in await world.audit(card)] == [
        AuditKind.REQUESTED,
        AuditKind.APPROVED,
        AuditKind.EXECUTED,
    ]


async def test_c10_one_wins_over_two_processes(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank), script=ONE_REFUND)
    first, second = world.app, await world.start()
    run = await world.send()
    card = await world.card(run)

    answers = await asyncio.gather(
        *(world.approve(card, to=first if number % 2 else second) for number in range(20)), return_exceptions=True
    )
    await world.completed(run)

    # Whoever comes after the run's end is told that it has ended: both are a 409.
    refused = [answer for answer in answers if isinstance(answer, AlreadyDecided | RunNotActive)]
    assert [type(answer) for answer in answers].count(Decided) == 1
    assert len(refused) == 19
    assert bank.orders == ["A1"]
    assert [entry.kind for entry in await world.audit(card)].count(AuditKind.APPROVED) == 1


@pytest.mark.parametrize("late_ms", [-1, 0, 1])
async def test_c11_at_its_deadline_a_card_has_expired(new_world: NewWorld, bank: Bank, late_ms: int) -> None:
    world = await new_world(refund_tool(bank, approval=Requirement(ttl=TTL)), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)

    world.clock.advance(TTL + timedelta(milliseconds=late_ms))
    listed = await world.inbox()
    if late_ms < 0:
        await world.approve(card)
    else:
        with pytest.raises(Expired):
            await world.approve(card)
    await world.completed(run)

    assert listed.total == len(listed.cards) == (1 if late_ms < 0 else 0)
    assert bank.orders == (["A1"] if late_ms < 0 else [])
    assert await world.statuses(run) == [CallStatus.COMPLETED if late_ms < 0 else CallStatus.EXPIRED]


@pytest.mark.parametrize("runner", [INLINE[1], *DURABLE], ids=str)
async def test_c12_without_its_audit_row_there_is_no_decision(
    runner: Runner, new_world: NewWorld, bank: Bank, tmp_path: Path
) -> None:
    world = await new_world(refund_tool(bank), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)

    with refusing_inserts(tmp_path / DATABASE, "audit", "NEW.kind = 'approved'"):
        with pytest.raises(DBAPIError, match="broken"):
            await world.approve(card)
        assert (await world.call(card)).status is CallStatus.PENDING
        assert bank.orders == []
    await world.approve(card)
    await world.completed(run)

    assert [entry.kind for entry in await world.audit(card)].count(AuditKind.APPROVED) == 1
    assert bank.orders == ["A1"]


async def test_c13_a_decision_may_come_before_the_run_waits_for_it(
    new_world: NewWorld, bank: Bank, mail: MailServer
) -> None:
    gate = Gate()
    world = await new_world(
        refund_tool(bank),
        mail_tool(mail),
        policy=HoldsUp("send_mail", gate),
        script=[turn(ask_for("refund", {"order": "A1"}), ask_for("send_mail", {"to": "b"})), "Done."],
    )
    run = await world.send()
    early = await world.card(run)

    await gate.reached()
    await world.approve(early)
    gate.open()
    await world.settled(early)
    await world.approve(await world.card(run))
    await world.completed(run)

    assert bank.orders == ["A1"]
    assert len(mail.sent) == 1


async def test_c13_an_early_decision_survives_a_kill(durable_world: NewWorld, bank: Bank, mail: MailServer) -> None:
    gate = Gate()
    world = await durable_world(
        refund_tool(bank),
        mail_tool(mail),
        policy=HoldsUp("send_mail", gate),
        script=[turn(ask_for("refund", {"order": "A1"}), ask_for("send_mail", {"to": "b"})), "Done."],
    )
    run = await world.send()
    early = await world.card(run)

    await gate.reached()
    await world.approve(early)
    await world.restart(after=timedelta(minutes=1), policy=DefaultPolicy())
    await world.settled(early)
    await world.approve(await world.card(run))
    await world.completed(run)

    assert bank.orders == ["A1"]
    assert len(mail.sent) == 1
    assert len(world.prompts) == 2


async def test_c14_two_processes_drive_a_run_once(durable_world: NewWorld, bank: Bank) -> None:
    gate = Gate()
    world = await durable_world(agents=[desk(gated_refund_tool(bank, gate))], script=ONE_REFUND)
    first, second = world.app, await world.start()
    run = await world.send(to=first)
    card = await world.card(run)
    await world.parked(run)
    engine = second.engine
    assert engine is not None

    def is_renewed(tx: Tx) -> bool | None:
        row = engine.get(tx, run.run_id)
        assert row is not None
        assert row.lease_until is not None, "nobody drives it"
        return row.lease_until - world.clock.now() >= EngineLimits().lease / 2 or None

    await asyncio.gather(world.approve(card, to=second), gate.reached())
    for _ in range(6):  # past the lease of whoever drives it, were it not renewed
        world.clock.advance(timedelta(seconds=5))
        await world.until(is_renewed, "the lease to be renewed")
    gate.open()
    await world.completed(run)

    assert bank.orders == ["A1"]
    assert gate.arrivals == 1
    assert len(world.prompts) == 2
    positions = [entry.position for entry in await world.journal(run)]
    assert len(set(positions)) == len(positions)


async def test_c15_a_wake_up_that_was_lost_comes_again(durable_world: NewWorld, bank: Bank) -> None:
    faults = KillAfter("decide:approve")
    world = await durable_world(refund_tool(bank), script=ONE_REFUND, faults=faults)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    with pytest.raises(ProcessDied):
        await world.approve(card)
    await world.start()
    await world.completed(run)

    assert faults.done
    assert bank.orders == ["A1"]
    assert [entry.kind for entry in await world.audit(card)].count(AuditKind.APPROVED) == 1


async def test_c16_of_ten_messages_at_once_one_starts_a_run(any_world: NewWorld) -> None:
    world = await any_world(script=["Hello."])
    thread = (await world.send("First")).thread_id
    await world.completed()

    answers = await asyncio.gather(
        *(world.send(f"Message {number}", thread=thread) for number in range(10)), return_exceptions=True
    )
    started = [answer for answer in answers if isinstance(answer, Started)]
    refused = [answer for answer in answers if isinstance(answer, RunActive)]
    await world.completed(started[0])

    assert (len(started), len(refused)) == (1, 9)
    said = [message.role for message in (await world.thread(thread)).messages]
    assert said == [Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT]
