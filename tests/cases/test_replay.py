"""Cases 3: replay and repeated effects."""

import json
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import wraps
from io import StringIO

import pytest

from signoff import (
    Actor,
    DecisionRequest,
    Happened,
    NotHappened,
    Requirement,
    ToolContext,
    Unknown,
    Verb,
    ask,
    define_tool,
)
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.audit import AuditKind
from signoff.domain.call import Call, CallStatus
from signoff.domain.frame import instant
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.thread import Role, Thread
from signoff.errors import AlreadyDecided, CardChanged
from signoff.http.present import approval_view
from signoff.ports.model import CallResult
from signoff.ports.policy import ToolView
from signoff.service.decide import decide
from signoff.service.send import Started
from signoff.testing.outside import Bank, Gate, MailServer
from signoff.testing.scripted import ask_for, turn
from signoff.testing.world import ANA, Script, World
from tests.cases.conftest import NewWorld
from tests.cases.desk import Archive, Crash, crashing_refund_tool, desk, mail_tool, refund_tool
from tests.cases.web import JSON, browser

ONE_REFUND: Script = [ask_for("refund", {"order": "A1"}), "Done."]
LEASE = timedelta(minutes=1)


async def test_c17_nothing_before_the_pause_is_repeated(durable_world: NewWorld, bank: Bank) -> None:
    archive = Archive()
    world = await durable_world(
        archive.tool,
        refund_tool(bank),
        script=[turn(ask_for("get_order", {"order": "A1"}), ask_for("refund", {"order": "A1"})), "Done."],
    )
    run = await world.send("Refund A1")
    card = await world.card(run)
    for _ in range(3):
        await world.parked(run)
        await world.restart(after=LEASE)
    await world.approve(card)
    await world.completed(run)

    assert archive.reads == 1
    assert len(world.prompts) == 2
    said = [message for message in (await world.thread(run)).messages if message.role is Role.USER]
    assert [message.content for message in said] == ["Refund A1"]
    assert bank.orders == ["A1"]


async def lose_process_after_paying(world: World, crash: Crash) -> Started:
    """Approve the world's one refund, let its process die right after it has paid, and start another one."""
    crash.arm(world)
    run = await world.send()
    await world.approve(await world.card(run))
    await crash.struck()
    await world.restart(after=LEASE)
    return run


async def test_c18_an_action_that_lost_its_process_is_not_run_again_but_shown(
    durable_world: NewWorld, bank: Bank
) -> None:
    crash = Crash()
    world = await durable_world(crashing_refund_tool(bank, crash), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    card = await world.card(run)

    assert bank.requests == 1
    assert card.status is CallStatus.IN_DOUBT
    assert card.in_doubt is not None
    assert card.in_doubt["attempt"] == 1
    inbox = await world.inbox()
    assert [(each.id, each.status) for each in inbox.cards] == [(card.id, CallStatus.IN_DOUBT)]
    await world.settle(card, {"receipt": 1})
    await world.completed(run)
    (call,) = await world.calls(run)
    assert (call.status, call.output) == (CallStatus.COMPLETED, {"receipt": 1})
    assert bank.requests == 1
    assert AuditKind.IN_DOUBT in [entry.kind for entry in await world.audit(card)]


async def test_c18_a_repeated_click_on_the_first_card_does_not_run_it_again(
    durable_world: NewWorld, bank: Bank
) -> None:
    """Networks repeat requests: only an answer to the card in doubt, by its digest, runs the action again."""
    crash = Crash()
    world = await durable_world(crashing_refund_tool(bank, crash), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    card = await world.card(run)

    for digest in (None, card.digest):
        with pytest.raises(CardChanged):
            await world.app.decide(ANA, DecisionRequest(call_id=card.id, verb=Verb.APPROVE, digest=digest))

    assert (await world.call(card)).status is CallStatus.IN_DOUBT
    assert bank.requests == 1
    await world.reject(card)
    await world.completed(run)


@pytest.mark.parametrize(
    ("verb", "shown_as"), [(Verb.APPROVE, "ana"), (Verb.SETTLE, "ana"), (Verb.REJECT, "bo")], ids=str
)
async def test_c18_who_resolves_the_doubt_stands_beside_who_approved(
    durable_world: NewWorld, bank: Bank, verb: Verb, shown_as: str
) -> None:
    """Ana said yes, Bo what became of it. Only a card that ends with Bo's no shows his name as the decider's."""
    crash = Crash()
    world = await durable_world(crashing_refund_tool(bank, crash), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    card = await world.card(run)
    request = DecisionRequest(call_id=card.id, verb=verb, via="slack", digest=card.shown_digest, reason="I looked")
    bo = Actor(id="bo")

    await decide(world.app.deps, bo, request, by_port=True)
    with pytest.raises(AlreadyDecided) as second:
        await decide(world.app.deps, ANA, request, by_port=True)
    await world.completed(run)

    call = await world.call(card)
    shown = approval_view(call)
    assert (call.decided_by, call.decided_via, call.resolved_by) == ("ana", "web", "bo")
    assert second.value.decided_by == "bo"
    assert shown is not None
    assert shown["decidedBy"] == shown_as
    assert shown["inDoubt"] == {
        "startedAt": shown["inDoubt"]["startedAt"],
        "attempt": 1,
        "round": 1,
        "resolution": {Verb.APPROVE: "approved", Verb.SETTLE: "settled", Verb.REJECT: "rejected"}[verb],
        "resolvedBy": "bo",
        "resolvedVia": "slack",
        "resolvedAt": instant(world.clock.now()),
        "reason": "I looked",
    }
    settled = [each.frame for each in await world.frames(run) if each.frame["kind"] == "approval-settled"]
    assert [frame["decidedBy"] for frame in settled] == ["ana", *([] if verb is Verb.SETTLE else [shown_as])]


@pytest.mark.parametrize("again", [True, False])
async def test_c18_a_person_may_run_it_again_or_give_up(durable_world: NewWorld, bank: Bank, again: bool) -> None:
    crash = Crash()
    world = await durable_world(crashing_refund_tool(bank, crash), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    card = await world.card(run)

    if again:
        await world.approve(card)
    else:
        await world.reject(card, "leave it")
    await world.completed(run)

    assert bank.requests == (2 if again else 1)
    assert bank.orders == ["A1"]
    assert await world.statuses(run) == [CallStatus.COMPLETED if again else CallStatus.REJECTED]
    told = [message.output for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert ("outcome is unknown" in str(told[-1])) is not again
    assert "did not run" not in str(told[-1])


async def test_c18_a_run_in_doubt_can_be_cancelled_and_its_thread_goes_on(durable_world: NewWorld, bank: Bank) -> None:
    crash = Crash()
    world = await durable_world(
        crashing_refund_tool(bank, crash),
        script={"Go on.": [ask_for("refund", {"order": "A1"})], "And now?": ["All is well."]},
    )
    run = await lose_process_after_paying(world, crash)
    await world.card(run)
    await world.parked(run)

    await world.cancel(run)
    await world.completed(await world.send("And now?", thread=run.thread_id))

    assert bank.requests == 1
    assert await world.statuses(run) == [CallStatus.CANCELLED]
    told = [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert "check what happened" in str(told[-1].output)


@pytest.mark.parametrize("answer", ["happened", "not happened", "unknown"])
async def test_c18_the_tools_own_check_may_know(durable_world: NewWorld, bank: Bank, answer: str) -> None:
    crash = Crash()

    async def probe(ctx: ToolContext) -> Happened | NotHappened | Unknown:
        match answer:
            case "happened":
                return Happened(output=bank.paid(ctx.idempotency_key))
            case "not happened":
                return NotHappened()
            case _:
                return Unknown(why="the bank is closed")

    world = await durable_world(crashing_refund_tool(bank, crash, probe=probe), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    if answer == "unknown":
        await world.settle(await world.card(run), {"receipt": 1})
    await world.completed(run)

    assert bank.orders == ["A1"]
    assert bank.requests == (2 if answer == "not happened" else 1)
    assert await world.statuses(run) == [CallStatus.COMPLETED]


async def test_c18_an_action_that_may_be_repeated_is_repeated_under_the_same_key(
    durable_world: NewWorld, bank: Bank
) -> None:
    crash = Crash()
    world = await durable_world(crashing_refund_tool(bank, crash, idempotent=True), script=ONE_REFUND)
    run = await lose_process_after_paying(world, crash)
    await world.completed(run)

    assert bank.requests == 2
    assert bank.orders == ["A1"]


class Asks(DefaultPolicy):
    """A policy that asks a person about these tools only. It can be changed."""

    def __init__(self, *tools: str) -> None:
        self.tools = set(tools)

    def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        return Requirement(required=tool.name in self.tools)


async def test_c19_a_parked_call_stays_under_the_rule_it_was_parked_under(new_world: NewWorld, bank: Bank) -> None:
    policy = Asks("refund")
    world = await new_world(
        refund_tool(bank),
        policy=policy,
        script=[ask_for("refund", {"order": "A1"}), ask_for("refund", {"order": "A2"}), "Done."],
    )
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    policy.tools.clear()
    assert (await world.call(card)).status is CallStatus.PENDING
    await world.approve(card)
    await world.completed(run)

    assert bank.orders == ["A1", "A2"]
    assert [call.decided_via for call in await world.calls(run)] == ["web", "policy"]


async def test_c19_a_laxer_policy_after_a_restart_frees_no_parked_call(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(
        refund_tool(bank),
        policy=Asks("refund"),
        script=[ask_for("refund", {"order": "A1"}), ask_for("refund", {"order": "A2"}), "Done."],
    )
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    await world.restart(after=LEASE, policy=Asks())
    beside = await world.send()
    await world.completed(beside)
    assert (await world.call(card)).status is CallStatus.PENDING
    assert bank.orders == ["A1", "A2"]
    await world.approve(card)
    await world.completed(run)

    assert bank.orders == ["A1", "A2", "A1", "A2"]


async def test_c19_a_stricter_policy_after_a_restart_asks_for_no_call_that_ran(
    durable_world: NewWorld, bank: Bank, mail: MailServer
) -> None:
    world = await durable_world(
        refund_tool(bank),
        mail_tool(mail),
        policy=Asks("send_mail"),
        script=[
            ask_for("refund", {"order": "A1"}),
            ask_for("send_mail", {"to": "b"}),
            ask_for("refund", {"order": "A2"}),
            "Done.",
        ],
    )
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    await world.restart(after=LEASE, policy=Asks("refund", "send_mail"))
    await world.approve(card)
    asked = await world.card(run)
    assert asked.arguments == {"order": "A2", "cents": 500}
    await world.approve(asked)
    await world.completed(run)

    assert bank.orders == ["A1", "A2"]
    assert len(mail.sent) == 1


async def test_c20_a_tool_that_is_gone_runs_no_other(durable_world: NewWorld, bank: Bank, mail: MailServer) -> None:
    archive = Archive()
    world = await durable_world(refund_tool(bank), archive.tool, mail_tool(mail), script=ONE_REFUND)
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    await world.restart(agents=[desk(archive.tool, mail_tool(mail))])
    await world.approve(card)
    await world.completed(run)

    (call,) = await world.calls(run)
    assert call.status is CallStatus.FAILED
    assert "no longer available" in str(call.error)
    assert (bank.requests, archive.reads, mail.sent) == (0, 0, [])


@pytest.mark.parametrize("slow", ["one", "two"])
async def test_c21_results_stay_at_their_own_calls(durable_world: NewWorld, bank: Bank, slow: str) -> None:
    gate = Gate()

    async def look(what: str) -> str:
        if what == slow:
            await gate.passage()
        else:
            gate.open()
        return f"found {what}"

    world = await durable_world(
        define_tool(look),
        refund_tool(bank),
        script=[
            turn(ask_for("look", {"what": "one"}), ask_for("look", {"what": "two"}), ask_for("refund", {"order": "A"})),
            "Done.",
        ],
    )
    run = await world.send()
    card = await world.card(run)
    await world.restart(after=LEASE)
    await world.approve(card)
    await world.completed(run)

    outputs = [call.output for call in await world.calls(run)]
    assert outputs[:2] == ["found one", "found two"]
    results = [message for message in world.prompts[-1].messages if isinstance(message, CallResult)]
    assert [result.output for result in results][:2] == ["found one", "found two"]


async def test_c21_a_kill_between_two_reads_that_swap_their_speeds(durable_world: NewWorld, bank: Bank) -> None:
    gates = {"one": Gate(), "two": Gate()}

    async def look(what: str) -> str:
        await gates[what].passage()
        return f"found {what}"

    world = await durable_world(
        define_tool(look),
        refund_tool(bank),
        script=[
            turn(ask_for("look", {"what": "one"}), ask_for("look", {"what": "two"}), ask_for("refund", {"order": "A"})),
            "Done.",
        ],
    )
    run = await world.send()
    await gates["one"].reached()
    gates["two"].open()
    await gates["two"].reached()
    await world.journaled("tool:", 1, run)
    world.kill()
    gates["one"].open()
    await world.restart(after=LEASE)
    await world.approve(await world.card(run))
    await world.completed(run)

    assert [call.output for call in await world.calls(run)][:2] == ["found one", "found two"]


async def test_c22_a_catch_all_does_not_swallow_a_question(new_world: NewWorld) -> None:
    attempts = []

    def retrying(function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        async def wrapper(**arguments: object) -> object:
            for attempt in range(3):
                attempts.append(attempt)
                try:
                    return await function(**arguments)  # type: ignore[misc]
                except Exception:  # noqa: BLE001  # what such wrappers do
                    continue
            return "gave up"

        return wrapper

    async def choose_seat(ctx: ToolContext) -> str:
        try:
            outcome = await ctx.ask([_SEAT])
        except Exception:  # noqa: BLE001  # what careless tools do
            return "swallowed"
        return outcome.answers["seat"][0]

    world = await new_world(
        define_tool(retrying(choose_seat), name="choose_seat"), script=[ask_for("choose_seat"), "Done."]
    )
    run = await world.send()
    card = await world.card(run)
    await world.parked(run)

    assert [frame.frame["kind"] for frame in await world.frames(run)].count("elicitation") == 1
    assert "tool-output-error" not in [frame.frame["kind"] for frame in await world.frames(run)]
    assert attempts == [0]
    await world.answer(card, {"seat": ["window"]})
    await world.completed(run)
    (call,) = [call for call in await world.calls(run) if call.name == "choose_seat"]
    assert (call.status, call.output) == (CallStatus.COMPLETED, "window")


async def test_c23_only_answers_that_can_be_read_back_are_stored(durable_world: NewWorld) -> None:
    world = await durable_world(ask, script=[ask_for("ask", _TRIP), "Thank you."])
    run = await world.send()
    card = await world.card(run)
    bad: list[object] = [
        [],
        "window",
        {"seat": "window"},
        {"seat": [1]},
        {"seat": ["roof"]},
        {"seat": ["window"]},  # without the required number
        {"bags": ["many"]},
        {"bags": ["2"], "pets": ["1"]},
        {"bags": ["2"], "note": ["x" * 1_000_000]},
    ]

    async with browser(world) as client:
        for answers in bad:
            body = {"toolCallId": card.id, "answers": answers}
            answer = await client.post("/tool-call/answer", content=json.dumps(body), headers=JSON)
            assert answer.status_code in (400, 413), answers
    assert (await world.call(card)).status is CallStatus.PENDING
    await world.parked(run)
    await world.restart()
    await world.answer(card, {"bags": ["2"], "seat": ["window"]})
    await world.completed(run)

    (call,) = await world.calls(run)
    assert isinstance(call.output, dict)
    assert call.output["answers"] == {"seat": ["window"], "bags": ["2"], "note": []}


async def test_c24_a_result_that_cannot_be_kept_fails_its_call_and_nothing_else(new_world: NewWorld) -> None:
    effects: list[str] = []
    endless: list[object] = []
    endless.append(endless)
    with closing(StringIO()) as file:
        results: dict[str, object] = {
            "file": file,
            "lock": threading.Lock(),
            "endless": endless,
            "nan": float("nan"),
            "fine": {"ok": True},
        }

        async def act(what: str) -> object:
            effects.append(what)
            return results[what]

        world = await new_world(
            define_tool(act, kind="action"),
            script=[turn(*(ask_for("act", {"what": what}) for what in results)), "Done."],
        )
        run = await world.send()
        for card in await world.cards(len(results), run):
            await world.approve(card)
        await world.completed(run)

    assert sorted(effects) == sorted(results)
    calls = await world.calls(run)
    assert [call.status for call in calls] == [CallStatus.FAILED] * 4 + [CallStatus.COMPLETED]
    assert all(" RAN, " in str(call.error) for call in calls[:4])


async def test_c25_nul_characters_survive_every_store(any_world: NewWorld) -> None:
    async def echo(text: str) -> str:
        return f"<{text}>"

    world = await any_world(
        define_tool(echo, kind="action"),
        script=[turn(ask_for("echo", {"text": "a\x00b"}), ask_for("echo", {"text": "c\x00d"})), "Said \x00 all."],
    )
    run = await world.send("Hello \x00 there")
    to_run, to_refuse = await world.cards(2, run)
    await world.approve(to_run)
    await world.reject(to_refuse, "no \x00 way")
    await world.completed(run)

    view = await world.thread(run)
    assert [message.content for message in view.messages] == ["Hello \x00 there", "", "Said \x00 all."]
    calls = await world.calls(run)
    assert [call.arguments for call in calls] == [{"text": "a\x00b"}, {"text": "c\x00d"}]
    assert calls[0].output == "<a\x00b>"
    assert calls[1].output == {"rejected": True, "reason": "no \x00 way"}


_SEAT: JsonObject = {
    "id": "seat",
    "prompt": "Which seat?",
    "options": [{"value": "aisle", "label": "Aisle"}, {"value": "window", "label": "Window"}],
    "defaults": ["aisle"],
}
_TRIP: JsonObject = {
    "questions": [
        _SEAT,
        {"id": "bags", "prompt": "How many bags?", "input": {"type": "number", "required": True, "min": 0}},
        {"id": "note", "prompt": "Anything else?", "input": {"type": "text"}},
    ]
}
