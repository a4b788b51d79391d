"""One Chromium and one demo a module; a fresh profile, and so a fresh person, a test."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.demo_process import RUNNERS, DemoProcess

# The background switches keep Chromium from looking up its maker's hosts at every start.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(executable_path=chromium, args=FLAGS)


@pytest.fixture(scope="module", params=RUNNERS)
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    with DemoProcess(Path(tmp_path_factory.mktemp("demo")), runner=request.param) as process:
        yield process


Visit = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Browser, demo: DemoProcess) -> AsyncIterator[Visit]:
    """Opens the page as somebody, in a browser profile of its own: `visit("ana", role="ADMIN")`.

    A script that fails, or a request that the policy forbids, fails the test.
    """
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    async def visit(person: str | None = None, *, role: str = "USER") -> Page:
        context = await browser.new_context()
        contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
        await page.goto(demo.url)
        if person is not None:
            await page.get_by_label("Your role").select_option(role)
            await page.get_by_label("Your name").fill(person)
            await page.get_by_label("Your name").press("Tab")
        return page

    yield visit
    for context in contexts:
        await context.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="module")
async def page(visit: Visit) -> Page:
    """The page, just opened."""
    return await visit()
