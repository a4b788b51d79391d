"""A person uses the demo's page."""

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.line import line_to
from tests.demo_process import DemoProcess

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def send(page: Page, message: str) -> None:
    box = page.get_by_role("textbox", name="Message", exact=True)
    await box.fill(message)
    await box.press("Enter")


async def turn_over(page: Page) -> None:
    await expect(page.get_by_role("button", name="Send")).to_be_visible()


#: Killed just before it could park, a run is driven again when its lease of 15 seconds is over.
TAKEN_OVER_MS = 40_000


async def reconnected(page: Page) -> None:
    """The page tries again every few seconds, and a server takes a few to start."""
    await expect(page.get_by_text("reconnecting…")).to_have_count(0, timeout=20_000)


async def test_a_question_is_looked_up_and_answered(page: Page) -> None:
    await send(page, "weather in Lisbon")
    await turn_over(page)
    await expect(page.locator(".call")).to_contain_text("getWeather done")
    await expect(page.locator("article.assistant")).to_contain_text("°C in Lisbon.")
    await expect(page.get_by_role("navigation")).to_contain_text("weather in Lisbon")


async def test_an_action_waits_for_approval_then_runs(page: Page) -> None:
    await send(page, "purge homepage")
    card = page.get_by_role("form", name="Approval: purgeCache")
    await expect(card).to_contain_text("homepage")
    await expect(page.get_by_text("is purged")).to_have_count(0)

    await card.get_by_role("button", name="Approve").click()

    await turn_over(page)
    await expect(page.locator(".call")).to_contain_text("purgeCache done")
    await expect(page.get_by_text("Done: homepage is purged.")).to_be_visible()


async def test_a_reload_while_waiting_shows_the_card_once(page: Page) -> None:
    await send(page, "purge homepage")
    card = page.get_by_role("form", name="Approval: purgeCache")
    await expect(card).to_be_visible()

    await page.reload()

    await expect(card).to_have_count(1)
    await expect(page.locator("article.user")).to_have_count(1)
    await card.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: homepage is purged.")).to_be_visible()
    await page.reload()
    await expect(page.locator(".call")).to_have_count(1)
    await expect(page.get_by_text("Done: homepage is purged.")).to_have_count(1)


async def test_a_rejection_and_its_reason_reach_the_model(page: Page) -> None:
    await send(page, "purge homepage")
    await page.get_by_label("Reason for rejecting").fill("not today")
    await page.get_by_role("button", name="Reject").click()

    await turn_over(page)
    await expect(page.locator(".call")).to_contain_text("purgeCache rejected")
    await expect(page.get_by_text("All right, I left it alone: not today.")).to_be_visible()
    await page.reload()
    await expect(page.locator(".call")).to_contain_text("purgeCache rejected")


async def test_a_remembered_approval_is_not_asked_for_again(page: Page) -> None:
    await send(page, "purge one")
    await page.get_by_label("Don’t ask again").check()
    await page.get_by_role("button", name="Approve").click()
    await turn_over(page)

    await send(page, "purge two")

    await expect(page.get_by_text("Done: two is purged.")).to_be_visible()
    await expect(page.locator(".call").last).to_contain_text("approved as remembered")


async def test_changed_arguments_are_what_runs(page: Page) -> None:
    await send(page, "purge everything")
    await page.get_by_role("button", name="Change the arguments").click()
    await page.get_by_label("key").fill("homepage")
    await page.get_by_role("button", name="Approve as changed").click()

    await expect(page.get_by_text("Done: homepage is purged.")).to_be_visible()
    await expect(page.get_by_text("Done: everything is purged.")).to_have_count(0)
    await both_versions_are_shown(page)
    await page.reload()
    await both_versions_are_shown(page)


async def both_versions_are_shown(page: Page) -> None:
    versions = page.locator(".call .io")
    await expect(versions.filter(has_text="Input, as the model asked").locator("dd")).to_have_text("everything")
    await expect(versions.filter(has_text="Input, as it ran").locator("dd")).to_have_text("homepage")


async def test_a_change_that_the_tool_cannot_take_is_refused_and_the_card_stays(page: Page) -> None:
    await page.get_by_label("Your role").select_option("ADMIN")
    await send(page, "refund A-1001")
    card = page.get_by_role("form", name="Approval: refundOrder")
    await card.get_by_role("button", name="Change the arguments").click()
    await card.get_by_label("cents").fill("0.5")
    await card.get_by_role("button", name="Approve as changed").click()
    await expect(card.get_by_role("alert")).to_contain_text("cents")

    await card.get_by_label("cents").fill("1000")
    await card.get_by_role("button", name="Approve as changed").click()

    await expect(page.get_by_text("Done: 10.00 € refunded for order A-1001.")).to_be_visible()


async def test_only_the_named_role_may_approve(page: Page) -> None:
    await send(page, "refund A-1001")
    card = page.get_by_role("form", name="Approval: refundOrder")
    refund = card.get_by_role("button", name="Refund 42.00 €")
    await expect(card.get_by_role("heading")).to_have_text("Refund 42.00 € for order A-1001?")
    await expect(refund).to_be_disabled()
    await expect(card.locator("time")).to_contain_text("left")

    await page.get_by_label("Your role").select_option("ADMIN")

    await refund.click()
    await expect(page.get_by_text("Done: 42.00 € refunded for order A-1001.")).to_be_visible()


async def test_a_question_is_answered(page: Page) -> None:
    await send(page, "ask me")
    await expect(page.get_by_label("The whole module")).to_be_checked()
    await page.get_by_label("Only this file").check()
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_text("Thank you, I take: file.")).to_be_visible()


async def test_a_skipped_question_takes_its_defaults(page: Page) -> None:
    await send(page, "ask me")
    await page.get_by_role("button", name="Skip").click()
    await expect(page.get_by_text("You skipped that, so I take: module.")).to_be_visible()


async def test_stop_ends_the_answer_and_frees_the_thread(page: Page) -> None:
    await send(page, "slow")
    await expect(page.locator("article.assistant")).to_contain_text("This answer takes")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("Stopped.")).to_be_visible()
    await expect(page.locator("article.assistant")).not_to_contain_text("Or press Stop.")

    await send(page, "hello")
    await expect(page.get_by_text("Hello!")).to_be_visible()


async def test_a_reload_in_mid_answer_reads_on(page: Page) -> None:
    await send(page, "slow")
    await expect(page.locator("article.assistant")).to_contain_text("This answer takes")
    await page.reload()
    await turn_over(page)
    await expect(page.locator("article.assistant")).to_have_count(1)
    await expect(page.locator("article.assistant .text")).to_have_count(1)
    await expect(page.locator("article.assistant")).to_contain_text("Or press Stop.")


async def test_a_failure_is_told_and_the_next_turn_works(page: Page) -> None:
    await send(page, "boom")
    await expect(page.get_by_role("alert").filter(has_text=".")).to_be_visible()
    await turn_over(page)
    await send(page, "hello")
    await expect(page.get_by_text("Hello!")).to_be_visible()


async def test_markup_is_text(page: Page) -> None:
    await send(page, "<img src=x onerror=alert(1)>")
    await expect(page.locator("article.assistant")).to_contain_text("You said: <img src=x onerror=alert(1)>")
    await expect(page.locator("#log img")).to_have_count(0)


async def test_a_card_hides_no_character(page: Page) -> None:
    """A direction mark makes `k-txt.exe` look like `k-exe.txt`; what cannot be seen is written out."""
    await send(page, "purge k-\u202etxt.exe")
    await expect(page.get_by_role("form").locator("dd")).to_have_text("k-\\u{202e}txt.exe")


@pytest.mark.parametrize("demo", ["durable"], indirect=True)
async def test_a_card_outlives_the_server(page: Page, demo: DemoProcess) -> None:
    """Killed while the card waits: the page says it reconnects, and goes on with the same card."""
    await send(page, "purge homepage")
    card = page.get_by_role("form", name="Approval: purgeCache")
    await expect(card).to_be_visible()
    demo.kill()
    await expect(page.get_by_text("reconnecting…")).to_be_visible()

    demo.start()

    await reconnected(page)
    await expect(card).to_have_count(1)
    await card.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Done: homepage is purged.")).to_be_visible(timeout=TAKEN_OVER_MS)


async def test_a_message_sent_while_the_server_is_away_arrives_once(page: Page, demo: DemoProcess) -> None:
    demo.kill()
    await send(page, "hello")
    await expect(page.get_by_text("reconnecting…")).to_be_visible()

    demo.start()

    await reconnected(page)
    await expect(page.get_by_text("Hello!")).to_be_visible()
    await page.reload()
    await expect(page.locator("article.user")).to_have_count(1)
    await expect(page.locator("article.assistant")).to_have_count(1)


async def test_a_lost_connection_reads_on_where_it_broke(page: Page, demo: DemoProcess) -> None:
    async with line_to(demo.url) as line:
        await page.goto(line.url)
        attached: list[str] = []
        page.on("request", lambda request: attached.append(request.url) if "/stream" in request.url else None)
        await send(page, "slow")
        answer = page.locator("article.assistant")
        await expect(answer).to_contain_text("This answer takes")
        line.cut()
        await expect(page.get_by_text("reconnecting…")).to_be_visible()

        line.mend()

        await turn_over(page)
        assert "after=" in attached[-1]
        await expect(answer).to_have_count(1)
        text = await answer.locator(".text").inner_text()
        await page.reload()
        await expect(answer.locator(".text")).to_have_text(text)


async def test_a_reset_stream_is_read_afresh(page: Page, demo: DemoProcess) -> None:
    """What lay under the cursor was withdrawn: the thread is read again, and its run from the first frame."""
    resets: list[str] = []

    async def reset_once(route: Route) -> None:
        if resets:
            await route.continue_()
        else:
            resets.append(route.request.url)
            await route.fulfill(status=404, json={"code": "stream_reset", "message": "withdrawn"})

    async with line_to(demo.url) as line:
        await page.goto(line.url)
        await page.route("**/stream?after=*", reset_once)
        await send(page, "purge homepage")
        card = page.get_by_role("form", name="Approval: purgeCache")
        await expect(card).to_be_visible()
        async with page.expect_response("**/stream"):
            line.cut()
            line.mend()

        assert len(resets) == 1
        await expect(card).to_have_count(1)
        await card.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("Done: homepage is purged.")).to_have_count(1)


async def test_a_message_that_was_heard_without_an_answer_is_not_sent_twice(page: Page) -> None:
    """The server takes the message, the response is lost, the page tries again: one run, one answer."""
    tries: list[str] = []

    async def lose_the_first_response(route: Route) -> None:
        tries.append(route.request.url)
        if len(tries) > 1:
            await route.continue_()
        else:
            await route.fetch()
            await route.abort("connectionreset")

    await page.route("**/agent/chat", lose_the_first_response)
    await send(page, "hello")
    await expect(page.get_by_text("Hello!")).to_be_visible()
    await turn_over(page)

    assert len(tries) == 2
    await page.reload()
    await expect(page.locator("article.user")).to_have_count(1)
    await expect(page.locator("article.assistant")).to_have_count(1)
    await expect(page.get_by_role("navigation").get_by_role("button")).to_have_count(1)


@pytest.mark.parametrize("demo", ["durable"], indirect=True)
async def test_an_action_cut_off_by_a_crash_is_put_to_a_person_with_its_facts(page: Page, demo: DemoProcess) -> None:
    """Approved, under way, killed: nobody knows whether the money went. The page asks, and runs nothing by itself."""
    await send(page, "transfer 50")
    card = page.get_by_role("form", name="Approval: transferMoney")
    await card.get_by_role("button", name="Approve").click()
    await expect(page.locator(".call")).to_contain_text("transferMoney running")
    demo.kill()
    await expect(page.get_by_text("reconnecting…")).to_be_visible()

    demo.start()

    await expect(card.get_by_text("it may have happened")).to_be_visible(timeout=TAKEN_OVER_MS)
    await expect(card).to_contain_text("Attempt 1 was started at")
    for way_out in ("It happened", "Run it again", "Give up"):
        await expect(card.get_by_role("button", name=way_out)).to_be_enabled()
    await page.reload()
    await expect(card.get_by_text("it may have happened")).to_be_visible()
    await card.get_by_label("What it returned").fill("receipt 7")
    await card.get_by_role("button", name="It happened").click()
    await expect(page.get_by_text("So the money is there: receipt 7.")).to_be_visible()
