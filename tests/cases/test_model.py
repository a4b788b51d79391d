"""Cases 4: what the model sends."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from signoff import Actor, EventName, Ready, Requirement, define_tool
from signoff.approvals.requirement import POLICY_LIMIT, DefaultPolicy
from signoff.domain.audit import AuditKind
from signoff.domain.call import Call, CallStatus
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import RunStatus
from signoff.domain.thread import Thread
from signoff.ports.engine import EngineLimits
from signoff.ports.model import CallResult
from signoff.ports.policy import ToolView
from signoff.testing.outside import Bank, Gate, MailServer
from signoff.testing.scripted import ask_for, turn
from signoff.testing.world import Script, World
from tests.cases.conftest import DATABASE, DURABLE, INLINE, NewWorld
from tests.cases.desk import (
    Archive,
    Crash,
    crashing_refund_tool,
    desk,
    gated_refund_tool,
    mail_tool,
    refund_tool,
)

ONE_REFUND: Script = [ask_for("refund", {"order": "A1"}), "Done."]


def results(world: World) -> list[CallResult]:
    """The results in the last prompt."""
    return [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]


async def test_c26_broken_arguments_never_reach_the_rule_or_the_tool(new_world: NewWorld, bank: Bank) -> None:
    seen: list[Call] = []

    class Watching(DefaultPolicy):
        def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
            seen.append(call)
            return Requirement(required=False)

    world = await new_world(
        refund_tool(bank),
        policy=Watching(),
        script={
            "Refund.": [ask_for("refund", '{"order": "A1", "cents": 5'), "That went wrong."],
            "Again.": [ask_for("refund", {"order": "A1"}), "Done."],
        },
    )
    run = await world.send("Refund.")
    await world.completed(run)

    assert seen == []
    assert bank.orders == []
    assert "approval-requested" not in [frame.frame["kind"] for frame in await world.frames(run)]
    (result,) = results(world)
    assert result.is_error
    assert "not valid" in str(result.output)
    await world.completed(await world.send("Again.", thread=run.thread_id))
    assert bank.orders == ["A1"]


async def test_c27_an_unknown_tool_harms_no_sibling(new_world: NewWorld) -> None:
    archive = Archive()
    world = await new_world(
        archive.tool, script=[turn(ask_for("get_odrer", {"order": "A1"}), ask_for("get_order", {"order": "A1"})), "Ok."]
    )
    run = await world.send()
    await world.completed(run)

    unknown, known = results(world)
    assert unknown.is_error
    assert "get_order" in str(unknown.output)
    assert not known.is_error
    assert archive.reads == 1


async def test_c28_a_hook_cannot_change_what_runs(new_world: NewWorld, bank: Bank) -> None:
    def raise_it(order: str, lines: list[int]) -> Ready:
        lines.append(500)
        return Ready()

    async def refund(order: str, lines: list[int]) -> JsonObject:
        return bank.refund(order, sum(lines))

    world = await new_world(
        define_tool(refund, kind="action", execute_check=raise_it, prepare=raise_it),
        script=[ask_for("refund", {"order": "A1", "lines": [5]}), "Done."],
    )
    run = await world.send()
    card = await world.card(run)
    await world.approve(card)
    await world.completed(run)

    assert card.arguments == {"order": "A1", "lines": [5]}
    assert [payment.cents for payment in bank.payments] == [5]


@pytest.mark.parametrize("runner", [INLINE[1], *DURABLE], ids=str)
async def test_c28_arguments_that_changed_behind_the_card_do_not_run(
    new_world: NewWorld, bank: Bank, tmp_path: Path
) -> None:
    world = await new_world(refund_tool(bank), script=[ask_for("refund", {"order": "A1", "cents": 5}), "Done."])
    run = await world.send()
    card = await world.card(run)

    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("UPDATE calls SET arguments = replace(arguments, '5', '500')")
        connection.commit()
    await world.approve(card)
    await world.completed(run)

    assert bank.orders == []
    (call,) = await world.calls(run)
    assert call.status is CallStatus.FAILED
    assert "not what was approved" in str(call.error)
    assert AuditKind.MISMATCHED in [entry.kind for entry in await world.audit(card)]


async def test_c28_a_tool_whose_arguments_mean_something_else_by_now_does_not_run(
    durable_world: NewWorld, bank: Bank
) -> None:
    world = await durable_world(refund_tool(bank), script=[ask_for("refund", {"order": "A1", "cents": 5}), "Done."])
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    async def refund(order: str, cents: int = 500, currency: str = "USD") -> JsonObject:
        return bank.refund(order, cents)

    await world.restart(agents=[desk(define_tool(refund, kind="action"))])
    await world.approve(card)
    await world.completed(run)

    assert bank.orders == []
    assert AuditKind.MISMATCHED in [entry.kind for entry in await world.audit(card)]


def _raises() -> object:
    raise RuntimeError("the rule is broken")


def _times_out() -> object:
    raise TimeoutError


async def _says_no_later() -> object:
    await asyncio.sleep(0)
    return "no"


@pytest.mark.parametrize(
    "rule",
    [_raises, _times_out, lambda: None, lambda: "no", lambda: 0, lambda: False, _says_no_later],
    ids=["raises", "times out", "None", "no", "0", "False", "awaitable"],
)
async def test_c29_a_rule_in_doubt_asks(new_world: NewWorld, bank: Bank, rule: Callable[[], object]) -> None:
    class Broken(DefaultPolicy):
        def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
            return rule()  # type: ignore[return-value]  # what broken rules do

    world = await new_world(refund_tool(bank), policy=Broken(), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)

    assert card.status is CallStatus.PENDING
    assert bank.orders == []
    await world.reject(card)
    await world.completed(run)
    assert bank.orders == []


async def test_c29_a_rule_that_hangs_asks(new_world: NewWorld, bank: Bank) -> None:
    called = asyncio.Event()

    class Hanging(DefaultPolicy):
        async def requirement_for(  # type: ignore[override]  # a policy may be asynchronous
            self, call: Call, tool: ToolView, actor: Actor, thread: Thread
        ) -> Requirement:
            called.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

    world = await new_world(refund_tool(bank), policy=Hanging(), script=ONE_REFUND)
    run = await world.send()
    await called.wait()
    world.clock.advance(POLICY_LIMIT)
    card = await world.card(run)

    assert (card.status, card.approver) == (CallStatus.PENDING, "requester")
    await world.reject(card)
    await world.completed(run)
    assert bank.orders == []


async def test_c30_a_dead_turn_leaves_no_call_without_a_result(new_world: NewWorld, bank: Bank) -> None:
    gate = Gate()
    archive = Archive()
    world = await new_world(
        archive.tool,
        gated_refund_tool(bank, gate, timeout=timedelta(minutes=1)),
        script={
            "Refund.": [turn(ask_for("get_order", {"order": "A1"}), ask_for("refund", {"order": "A1"}))],
            "And?": ["I had better check."],
        },
    )
    run = await world.send("Refund.")
    await world.approve(await world.card(run))
    await gate.reached()
    world.clock.advance(timedelta(minutes=2))
    # The tool ran out of time; the model has nothing to say to that, so the run fails.
    assert (await world.ended(run)).status is RunStatus.FAILED

    await world.completed(await world.send("And?", thread=run.thread_id))

    read, refund = results(world)
    assert (read.name, read.is_error) == ("get_order", False)
    assert (refund.name, refund.is_error) == ("refund", True)


async def test_c30_a_turn_whose_workers_died_leaves_no_call_without_a_result(
    durable_world: NewWorld, bank: Bank
) -> None:
    crash, archive = Crash(), Archive()
    world = await durable_world(
        archive.tool,
        crashing_refund_tool(bank, crash),
        engine_limits=EngineLimits(crashes_max=1),
        script={
            "Refund.": [turn(ask_for("get_order", {"order": "A1"}), ask_for("refund", {"order": "A1"}))],
            "And?": ["I had better check."],
        },
    )
    crash.arm(world)
    run = await world.send("Refund.")
    await world.approve(await world.card(run))
    await crash.struck()
    await world.restart(after=timedelta(minutes=1))
    assert (await world.ended(run)).status is RunStatus.FAILED

    await world.completed(await world.send("And?", thread=run.thread_id))

    read, refund = results(world)
    assert (read.name, read.is_error) == ("get_order", False)
    assert (refund.name, refund.is_error) == ("refund", True)
    assert "never completed" in str(refund.output)
    assert bank.requests == 1
    assert EventName.RUN_FAILED in [event.name for event in world.events]


@pytest.mark.parametrize("runner", INLINE, ids=str)
async def test_c30_a_turn_that_a_shutdown_ended_leaves_no_call_without_a_result(
    new_world: NewWorld, bank: Bank
) -> None:
    gate = Gate()
    world = await new_world(
        gated_refund_tool(bank, gate),
        script={"Refund.": [ask_for("refund", {"order": "A1"})], "And?": ["I had better check."]},
    )
    run = await world.send("Refund.")
    await world.approve(await world.card(run))
    await gate.reached()

    await world.redeploy()
    assert (await world.run(run)).status is RunStatus.FAILED
    await world.completed(await world.send("And?", thread=run.thread_id))

    (refund,) = results(world)
    assert "never completed" in str(refund.output)
    assert bank.orders == []


async def test_c31_a_reopened_thread_shows_each_call_as_it_ended(
    new_world: NewWorld, bank: Bank, mail: MailServer
) -> None:
    archive = Archive()

    async def wire(to: str) -> None:
        raise AssertionError("nobody approved this")

    async def close_account() -> None:
        raise RuntimeError("the account is locked")

    world = await new_world(
        archive.tool,
        refund_tool(bank),
        mail_tool(mail),
        define_tool(wire, kind="action", approval=Requirement(ttl=timedelta(minutes=1))),
        define_tool(close_account, kind="action"),
        script=[
            turn(
                ask_for("get_order", {"order": "A1"}),
                ask_for("refund", {"order": "A1"}),
                ask_for("send_mail", {"to": "b"}),
                ask_for("wire", {"to": "c"}),
                ask_for("close_account"),
            ),
            "Done.",
        ],
    )
    run = await world.send()
    refund, send_mail, _, close = await world.cards(4, run)
    await world.approve(refund)
    await world.reject(send_mail, "no mail")
    await world.approve(close)
    world.clock.advance(timedelta(minutes=1))
    await world.completed(run)

    await world.redeploy()
    view = await world.thread(run)

    calls = [call for message in view.messages for call in view.calls.get(message.id, [])]
    assert [(call.name, call.status) for call in calls] == [
        ("get_order", CallStatus.COMPLETED),
        ("refund", CallStatus.COMPLETED),
        ("send_mail", CallStatus.REJECTED),
        ("wire", CallStatus.EXPIRED),
        ("close_account", CallStatus.FAILED),
    ]
    assert [call.output for call in calls] == [
        {"order": "A1", "cents": 500},
        {"receipt": 1, "order": "A1", "cents": 500},
        {"rejected": True, "reason": "no mail"},
        {"expired": True, "reason": "approval expired"},
        {"error": "RuntimeError: the account is locked"},
    ]
