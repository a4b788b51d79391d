"""Decision links, as the person who gets one by mail meets them, and as scanners, thieves and rivals do."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from signoff import Actor, Agent, Confirmation, Ready, Requirement, ToolContext, ask, define_tool
from signoff.approvals.links import DecisionLinks, read_token
from signoff.domain.call import Call, CallStatus
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import AlreadyDecided, Forbidden
from signoff.ports.notifier import Notification
from signoff.testing.outside import Bank
from signoff.testing.scripted import Answer, ask_for
from signoff.testing.stores import memory_stores
from signoff.testing.world import World

BO = Actor(id="bo", roles=frozenset({"finance", "USER"}))
CY = Actor(id="cy", roles=frozenset({"finance"}))
LINKS = DecisionLinks(secret="0123456789abcdef" * 2, base_url="https://desk.example/agent", ttl=timedelta(hours=2))
FORM = {"content-type": "application/x-www-form-urlencoded"}


class Office(World):
    """A world whose router is served; `browse` is a browser without any session."""

    def __init__(self, bank: Bank, *, approval: Requirement, script: list[Answer], **options: Any) -> None:
        async def refund(order: str, cents: int) -> JsonObject:
            return bank.refund(order, cents)

        async def prepare(order: str, cents: int, ctx: ToolContext) -> Ready:
            return Ready(confirmation=Confirmation(title=f"Pay <b>{order}</b>?\u202e", verb="Pay", detail="Now"))

        tool = define_tool(refund, kind="action", approval=approval, prepare=prepare)
        desk = Agent("desk", instructions="Serve.", tools=[tool, ask])
        super().__init__(
            memory_stores(),
            durable=False,
            script=script,
            agents=[desk],
            links=LINKS,
            **options,
        )

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[httpx.AsyncClient]:
        api = FastAPI()
        api.include_router(self.app.router(), prefix="/agent")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://desk.example") as client:
            yield client


@pytest.fixture
def bank() -> Bank:
    return Bank()


@asynccontextmanager
async def office(
    bank: Bank,
    *,
    approval: Requirement = Requirement(approver="finance", ttl=timedelta(hours=1), reason="money"),
    arguments: JsonObject | None = None,
    script: list[Answer] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Office, httpx.AsyncClient, Call]]:
    """An office with one open card."""
    call: list[Answer] = [ask_for("refund", arguments or {"order": "A1", "cents": 500}), "Done."]
    world = Office(bank, approval=approval, script=script or call, **options)
    await world.start()
    try:
        await world.send()
        async with world.browser() as browser:
            yield world, browser, await world.card()
    finally:
        await world.close()


def path(url: str) -> str:
    return urlsplit(url).path


async def test_a_link_is_opened_read_and_approved(bank: Bank) -> None:
    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        assert url.startswith("https://desk.example/agent/links/")

        page = await browser.get(url)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "order = &quot;A1&quot;" in page.text
        assert "cents = 500" in page.text
        assert "<dt>Asked by</dt><dd>ana</dd>" in page.text
        assert "<dt>You decide as</dt><dd>bo</dd>" in page.text
        assert "<dt>Until</dt><dd>2026-01-01T01:00:00.000Z</dd>" in page.text, "never longer than the card"
        assert '<button name="decision" value="approve">Pay</button>' in page.text
        assert bank.payments == []

        done = await browser.post(url, data={"decision": "approve", "reason": "fine"})
        assert done.status_code == 200
        assert "Recorded: approved" in done.text
        await world.completed()

        call = await world.call(card)
        assert (call.decided_by, call.decided_via, call.decision_reason) == ("bo", "link", "fine")
    assert len(bank.payments) == 1


async def test_a_page_runs_nothing_loads_nothing_and_is_framed_by_nobody(bank: Bank) -> None:
    async with office(bank) as (world, browser, card):
        page = await browser.get(await world.app.decision_link(BO, card.id))
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert page.headers["cache-control"] == "no-store"
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


async def test_no_text_of_the_card_is_markup_or_invisible(bank: Bank) -> None:
    arguments: JsonObject = {"order": "<script>alert(1)</script>\u202e\u200b\n</pre>", "cents": 500}
    async with office(bank, arguments=arguments) as (world, browser, card):
        page = await browser.get(await world.app.decision_link(BO, card.id))
    assert "<script>" not in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\u200b\\n&lt;/pre&gt;" in page.text
    assert "Pay &lt;b&gt;" in page.text
    assert "\u202e" not in page.text
    assert page.text.count("</pre>") == 1


async def test_a_scanner_that_follows_links_decides_nothing(bank: Bank) -> None:
    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        for _ in range(5):
            assert (await browser.get(url)).status_code == 200
        assert (await browser.head(url)).status_code == 405
        assert (await world.call(card)).status is CallStatus.PENDING
        assert await world.audit(card) == (await world.audit(card))[:1]


async def test_a_link_works_once(bank: Bank) -> None:
    """Also with a quorum, where the card is still open after it."""
    approval = Requirement(approver="finance", quorum=2)
    async with office(bank, approval=approval) as (world, browser, card):
        bos, cys = [await world.app.decision_link(actor, card.id) for actor in (BO, CY)]
        first = await browser.post(bos, data={"decision": "approve"})
        assert "1 of 2 approvals are there" in first.text

        for again in (await browser.post(bos, data={"decision": "reject"}), await browser.get(bos)):
            assert again.status_code == 410
            assert "this link was used" in again.text
        assert (await world.call(card)).is_open

        assert "<dt>Approvals</dt><dd>1 of 2</dd>" in (await browser.get(cys)).text
        assert (await browser.post(cys, data={"decision": "approve"})).status_code == 200
        await world.completed()
    assert len(bank.payments) == 1


async def test_of_two_people_one_decides_and_the_other_is_told(bank: Bank) -> None:
    async with office(bank) as (world, browser, card):
        bos, cys = [await world.app.decision_link(actor, card.id) for actor in (BO, CY)]
        assert (await browser.post(bos, data={"decision": "reject", "reason": "no"})).status_code == 200
        late = await browser.post(cys, data={"decision": "approve"})
        assert late.status_code == 409
        assert "already decided by bo" in late.text
        await world.completed()
    assert bank.payments == []


async def test_a_link_ends_with_its_time_and_with_its_card(bank: Bank) -> None:
    async with office(bank, approval=Requirement(approver="finance")) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        world.clock.advance(timedelta(hours=2))
        for late in (await browser.get(url), await browser.post(url, data={"decision": "approve"})):
            assert late.status_code == 410
            assert "good until" in late.text
        assert (await world.call(card)).is_open

    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        world.clock.advance(timedelta(hours=1))
        late = await browser.post(url, data={"decision": "approve"})
        assert late.status_code == 410
        assert "this request expired" in late.text
        await world.completed()
    assert bank.payments == []


async def test_a_link_that_was_touched_is_no_link(bank: Bank) -> None:
    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        body, _, signature = path(url).rpartition("/")[2].partition(".")
        forged = json.loads(base64.urlsafe_b64decode(body + "=="))
        forged["actor"] = "mallory"
        other = base64.urlsafe_b64encode(json.dumps(forged, separators=(",", ":")).encode()).decode().rstrip("=")
        for token in (f"{other}.{signature}", f"{body}.", body, f"{body}.{signature[:-4]}AAAA", "x", "ä.ö", "%00"):
            for refused in (
                await browser.get(f"/agent/links/{token}"),
                await browser.post(f"/agent/links/{token}", data={"decision": "approve"}),
            ):
                assert refused.status_code == 404, token
                assert "this link is not valid" in refused.text
        assert (await world.call(card)).is_open


async def test_a_link_of_another_secret_is_no_link(bank: Bank) -> None:
    other = DecisionLinks(secret="f" * 32, base_url="https://desk.example/agent")
    async with office(bank) as (world, browser, card):
        await world.start(links=other)
        foreign = await world.app.decision_link(BO, card.id)
        assert (await browser.get(foreign)).status_code == 404


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_form_on_another_page_is_refused(bank: Bank, site: str) -> None:
    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        refused = await browser.post(url, data={"decision": "approve"}, headers={"sec-fetch-site": site})
        assert refused.status_code == 403
        assert (await world.call(card)).is_open


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", FORM, 400),
        (b"decision=maybe", FORM, 400),
        (b"decision=approve&decision=reject", FORM, 400),
        (b"decision=approve&reason=%ff", FORM, 400),
        (b'{"decision":"approve"}', {"content-type": "application/json"}, 400),
        (b"decision=approve", {"content-type": "text/plain"}, 400),
        (b"decision=approve&reason=" + b"x" * 5000, FORM, 400),
        (b"decision=approve&reason=" + b"x" * 70_000, FORM, 413),
    ],
)
async def test_only_a_clear_yes_in_a_form_approves(
    bank: Bank, content: bytes, headers: dict[str, str], status: int
) -> None:
    async with office(bank) as (world, browser, card):
        url = await world.app.decision_link(BO, card.id)
        refused = await browser.post(url, content=content, headers=headers)
        assert refused.status_code == status
        assert (await world.call(card)).is_open
        assert (await browser.get(url)).status_code == 200, "a refused answer does not use the link up"
    assert bank.payments == []


async def test_links_are_made_only_for_those_who_may_decide(bank: Bank) -> None:
    approval = Requirement(approver="finance", may_requester=False)
    async with office(bank, approval=approval) as (world, _, card):
        for actor in (
            Actor(id="dan"),
            Actor(id="ana", roles=frozenset({"finance"})),
            Actor(id="bo", roles=frozenset({"finance"}), tenant="other"),
        ):
            with pytest.raises(Forbidden):
                await world.app.decision_link(actor, card.id)
        await world.reject(card, by=BO)
        with pytest.raises(AlreadyDecided):
            await world.app.decision_link(CY, card.id)


async def test_questions_are_confirmed_or_skipped(bank: Bank) -> None:
    questions: JsonObject = {
        "questions": [
            {
                "id": "size",
                "prompt": "Which <size>?",
                "options": [{"value": "m", "label": "M"}, {"value": "l", "label": "L"}],
                "defaults": ["m"],
            }
        ]
    }
    async with office(bank, script=[ask_for("ask", questions), "Done."]) as (world, browser, card):
        url = await world.app.decision_link(Actor(id="ana"), card.id)
        page = await browser.get(url)
        assert "Which &lt;size&gt;?" in page.text
        assert "Take the defaults" in page.text
        assert (await browser.post(url, data={"decision": "approve"})).status_code == 200
        await world.completed()
        output = (await world.call(card)).output
    assert isinstance(output, dict)
    assert output["answers"] == {"size": ["m"]}
    assert output["answeredVia"] == "link"


class Mailbox:
    """A notifier that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Notification] = []

    async def notify(self, notification: Notification) -> None:
        self.told.append(notification)

    def of(self, kind: str) -> list[Notification]:
        return [told for told in self.told if told.kind == kind]


async def test_a_notification_carries_a_link_for_each_approver_and_settles_without(bank: Bank) -> None:
    mailbox = Mailbox()
    asked: list[Notification] = []

    async def people(notification: Notification) -> list[Actor]:
        asked.append(notification)
        return [BO, CY, Actor(id="dan")]

    links = DecisionLinks(secret=LINKS.secret, base_url=LINKS.base_url, people=people)
    world = Office(
        bank,
        approval=Requirement(approver="finance", reason="money"),
        script=[ask_for("refund", {"order": "A1", "cents": 500}), "Done."],
        notifiers=[mailbox],
    )
    await world.start(links=links)
    try:
        await world.send()
        await world.card()
        await _delivered(world)
        [told] = mailbox.of("requested")
        assert told.payload["approver"] == "finance"
        assert told.payload["reason"] == "money"
        assert "arguments" not in told.payload
        made = told.payload["links"]
        assert isinstance(made, list)
        assert [item["actor"] for item in made if isinstance(item, dict)] == ["bo", "cy"]
        first = made[0]
        assert isinstance(first, dict)
        url = str(first["url"])
        assert read_token(links, path(url).rpartition("/")[2]).actor == BO

        async with world.browser() as browser:
            assert (await browser.post(url, data={"decision": "approve"})).status_code == 200
        await world.completed()
        await _delivered(world)
        [settled] = mailbox.of("settled")
        assert settled.payload["status"] == "completed"
        assert "links" not in settled.payload
        assert [notification.kind for notification in asked] == ["requested"]
    finally:
        await world.close()


async def _delivered(world: World) -> None:
    far = world.clock.now() + timedelta(days=999)
    await world.until(lambda tx: True if not tx.due_outbox(far, limit=1) else None, "an empty outbox")


async def test_without_links_there_is_no_such_route() -> None:
    world = World(memory_stores(), durable=False, agents=[Agent("desk", instructions="Serve.", tools=[])])
    await world.start()
    api = FastAPI()
    api.include_router(world.app.router(), prefix="/agent")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://desk.example") as browser:
        assert (await browser.get("/agent/links/x")).status_code == 404
    await world.close()
