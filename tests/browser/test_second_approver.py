"""What takes two people, neither of whom has asked: three browsers, one card."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.test_demo_page import send

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def card_in_inbox(page: Page) -> None:
    await page.get_by_role("button", name="Waiting for a decision").click()
    await expect(page.get_by_role("form", name="Approval: deleteAccount")).to_be_visible()


async def test_two_others_must_agree(visit: Visit) -> None:
    asker, ben, cleo = await visit("ana"), await visit("ben", role="ADMIN"), await visit("cleo", role="ADMIN")
    await send(asker, "delete ann")
    shown = asker.get_by_role("form", name="Approval: deleteAccount")
    await expect(shown).to_contain_text("0 of 2 approvals so far")
    await expect(shown.get_by_role("button", name="Approve")).to_be_disabled()

    await card_in_inbox(ben)
    await ben.get_by_role("button", name="Approve").click()

    await expect(ben.get_by_text("1 of 2 approvals so far")).to_be_visible()
    await expect(shown).to_contain_text("1 of 2 approvals so far")
    await asker.reload()
    await expect(shown).to_contain_text("1 of 2 approvals so far")
    await ben.get_by_role("button", name="Approve").click()
    await expect(ben.get_by_role("form").get_by_role("alert")).not_to_be_empty()

    await card_in_inbox(cleo)
    await expect(cleo.get_by_text("1 of 2 approvals so far")).to_be_visible()
    await cleo.get_by_role("button", name="Approve").click()

    await expect(asker.get_by_text("Done: the account ann is deleted.")).to_be_visible()
    await expect(asker.locator(".call")).to_contain_text("approved by cleo")
    await expect(cleo.get_by_text("Nothing waits.")).to_be_visible()


async def test_whoever_asked_cannot_agree(visit: Visit) -> None:
    page = await visit("dora", role="ADMIN")
    await send(page, "delete ann")
    card = page.get_by_role("form", name="Approval: deleteAccount")
    await card.get_by_role("button", name="Approve").click()
    await expect(card.get_by_role("alert")).to_contain_text("whoever asked for this cannot approve it")
    await card.get_by_role("button", name="Reject").click()
    await expect(page.locator(".call")).to_contain_text("deleteAccount rejected")
