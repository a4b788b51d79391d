"""`signoff replay-check` of a run that was undone when it was cancelled."""

from datetime import UTC, datetime

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import Context, JournalEntry, Retry, Task
from signoff.runners.replay import replay

TOOL = Task(group="tools", input={})


def done(position: int, name: str) -> JournalEntry:
    return JournalEntry(
        position=position,
        kind="dispatch",
        name=name,
        state="done",
        attempt=1,
        body=None,
        at=datetime(2026, 1, 1, tzinfo=UTC),
    )


async def test_how_a_run_was_undone_is_no_part_of_what_its_body_did() -> None:
    async def body(ctx: Context, _input: JsonObject) -> Json:
        ctx.on_undo("cancel flight", TOOL, retry=Retry())
        return await ctx.dispatch("book flight", TOOL, retry=Retry())

    entries = [done(-1, "cancel flight"), done(1, "book flight")]
    report = await replay(body, run_id="run", input_={}, entries=entries)

    assert report.ok
    assert report.replayed == 1
