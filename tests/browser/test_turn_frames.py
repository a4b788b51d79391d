"""How frames become what a person sees, where no server can be made to send them at will."""

import pytest
from playwright.async_api import Page

from signoff.domain import frame
from signoff.domain.call import ToolKind
from signoff.domain.frame import Frame

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

_TAKE = """async (frames) => {
    const { Turn } = await import("/turn.js");
    const turn = new Turn("run");
    for (const [seq, frame] of frames) turn.take(seq, frame);
    return { parts: turn.parts(), cursor: turn.cursor };
}"""


async def shown(page: Page, *frames: tuple[int, Frame]) -> list[dict[str, object]]:
    turn = await page.evaluate(_TAKE, [list(numbered) for numbered in frames])
    assert turn["cursor"] == max(seq for seq, _ in frames)
    parts: list[dict[str, object]] = turn["parts"]
    return parts


async def test_withdrawn_frames_are_not_shown(page: Page) -> None:
    """A model attempt that was lost in a crash: its text and its half-announced call go, the rest stays."""
    parts = await shown(
        page,
        (1, frame.step_start()),
        (2, frame.text("Let me ")),
        (3, frame.tool_input_start(call_id="lost", name="purgeCache", kind=ToolKind.ACTION)),
        (5, frame.withdrawn(from_seq=2)),
        (6, frame.text("I will ")),
        (7, frame.text("look.")),
    )
    assert [(part["type"], part.get("text")) for part in parts] == [("text", "I will look.")]


async def test_a_frame_seen_before_is_taken_once(page: Page) -> None:
    parts = await shown(page, (1, frame.text("a")), (2, frame.text("b")), (1, frame.text("a")), (2, frame.text("b")))
    assert [part["text"] for part in parts] == ["ab"]


async def test_text_after_a_tool_comes_after_it(page: Page) -> None:
    parts = await shown(
        page,
        (1, frame.step_start()),
        (2, frame.text("Looking.")),
        (3, frame.tool_input_available(call_id="c", name="getWeather", arguments={}, kind=ToolKind.READ)),
        (4, frame.tool_output(call_id="c", output={"tempC": 21})),
        (5, frame.step_finish(usage=None, cost_usd=None, model=None)),
        (6, frame.step_start()),
        (7, frame.text("21.")),
    )
    assert [part.get("text", part.get("state")) for part in parts] == ["Looking.", "done", "21."]


async def test_a_card_in_doubt_is_put_again_after_its_approval(page: Page) -> None:
    """Approved, started, cut off: the second request counts, with what is known about the first try."""
    in_doubt: Frame = {"startedAt": "2026-01-01T00:00:00.000Z", "attempt": 1}
    asks: Frame = {"kind": "approval-requested", "id": "c", "approver": "requester"}
    parts = await shown(
        page,
        (1, frame.tool_input_available(call_id="c", name="purgeCache", arguments={}, kind=ToolKind.ACTION)),
        (2, asks),
        (3, {"kind": "approval-settled", "id": "c", "status": "approved"}),
        (4, {**asks, "inDoubt": in_doubt}),
    )
    [call] = parts
    assert call["state"] == "waiting"
    card = call["card"]
    assert isinstance(card, dict)
    assert card["inDoubt"] == in_doubt
