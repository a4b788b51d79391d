"""What a sub-agent does is shown inside the call that led to it, and its cards are decided there."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.test_demo_page import TAKEN_OVER_MS, reconnected, send, turn_over
from tests.demo_process import DemoProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

NOTE = "The archive has 3 pages on bees. I kept a note of it under “bees”."


async def nested_calls_are_shown(page: Page, *, agent: str) -> None:
    """The delegating call outside; two calls of `agent` within; each once."""
    inside = page.get_by_role("region", name=agent)
    await expect(inside).to_have_count(1)
    await expect(inside.locator(".parts .call")).to_have_count(2)
    await expect(inside.locator(".parts")).to_contain_text("searchArchive done")
    await expect(inside.locator(".parts")).to_contain_text("saveNote done")
    await expect(page.locator(".call")).to_have_count(3)


async def test_a_card_of_a_sub_agent_is_decided_inside_the_call_that_led_to_it(page: Page) -> None:
    await send(page, "research bees")
    researcher = page.get_by_role("region", name="researcher")
    card = researcher.get_by_role("form", name="Approval: saveNote")
    await expect(card).to_be_visible()
    await expect(researcher).to_contain_text("ask_researcher running")
    await expect(researcher).to_contain_text("searchArchive done")

    await card.get_by_role("button", name="Approve").click()

    await turn_over(page)
    await expect(page.get_by_text(f"The researcher says: {NOTE}")).to_be_visible()
    await nested_calls_are_shown(page, agent="researcher")
    await page.reload()
    await expect(page.get_by_text(f"The researcher says: {NOTE}")).to_be_visible()
    await nested_calls_are_shown(page, agent="researcher")


async def test_a_reload_while_a_sub_agent_waits_keeps_its_card(page: Page) -> None:
    await send(page, "research bees")
    card = page.get_by_role("region", name="researcher").get_by_role("form", name="Approval: saveNote")
    await expect(card).to_be_visible()

    await page.reload()

    await expect(card).to_have_count(1)
    await expect(page.get_by_role("form", name="Approval: saveNote")).to_have_count(1)
    await card.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text(f"The researcher says: {NOTE}")).to_be_visible()
    await nested_calls_are_shown(page, agent="researcher")


async def test_a_card_of_a_sub_agent_is_in_the_inbox(page: Page) -> None:
    await send(page, "research bees")
    await expect(page.get_by_role("form", name="Approval: saveNote")).to_be_visible()
    await page.get_by_role("button", name="Waiting for a decision").click()
    inbox = page.get_by_role("region", name="Waiting for a decision")
    await expect(inbox).to_contain_text("researcher")
    await inbox.get_by_role("button", name="Approve").click()
    await expect(inbox.get_by_text("Nothing waits.")).to_be_visible()
    await page.get_by_role("navigation").get_by_role("button").click()
    await expect(page.get_by_text(f"The researcher says: {NOTE}")).to_be_visible()


async def test_stop_ends_the_sub_agent_too(page: Page) -> None:
    await send(page, "research bees")
    await expect(page.get_by_role("form", name="Approval: saveNote")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("Stopped.")).to_be_visible()
    await expect(page.get_by_role("form", name="Approval: saveNote")).to_have_count(0)
    await expect(page.get_by_role("region", name="researcher")).to_contain_text("saveNote failed")


async def test_a_detached_sub_agent_answers_later_in_a_message_of_its_own(page: Page) -> None:
    await send(page, "start bees")
    await expect(page.get_by_text("The archivist works on it by itself")).to_be_visible()
    await turn_over(page)
    card = page.get_by_role("region", name="archivist").get_by_role("form", name="Approval: saveNote")
    await expect(card).to_be_visible()
    await page.reload()
    await expect(card).to_have_count(1)
    await send(page, "hello")
    await expect(page.get_by_text("Hello!")).to_be_visible()
    await turn_over(page)

    await card.get_by_role("button", name="Approve").click()

    answer = page.locator("article.assistant").last
    await expect(answer).to_contain_text(NOTE)
    await expect(answer.locator("p.meta").first).to_have_text("archivist")
    await expect(answer.locator(".call")).to_have_count(2)
    await expect(page.get_by_text(NOTE)).to_have_count(1)
    await expect(page.get_by_role("form", name="Approval: saveNote")).to_have_count(0)


@pytest.mark.parametrize("demo", ["durable"], indirect=True)
async def test_a_sub_agents_card_outlives_the_server(page: Page, demo: DemoProcess) -> None:
    await send(page, "research bees")
    card = page.get_by_role("region", name="researcher").get_by_role("form", name="Approval: saveNote")
    await expect(card).to_be_visible()
    demo.kill()
    await expect(page.get_by_text("reconnecting…")).to_be_visible()
    demo.start()
    await reconnected(page)

    await card.get_by_role("button", name="Approve").click()

    await expect(page.get_by_text(f"The researcher says: {NOTE}")).to_be_visible(timeout=TAKEN_OVER_MS)
    await nested_calls_are_shown(page, agent="researcher")
