"""Several processes and a sink that serves one: said at the start, not found out by a user who sees nothing."""

from pathlib import Path

import pytest

from signoff import Agent, Event, EventName, Signoff
from signoff.testing.scripted import ScriptedModel

DESK = Agent("desk", instructions="Serve.")


async def told_at_start(database: str) -> list[EventName]:
    events: list[Event] = []
    app = Signoff(
        agents=[DESK],
        model=ScriptedModel([]),
        database=database,
        durable=not database.startswith("memory:"),
        subscribers=[events.append],
    )
    async with app.running():
        return [event.name for event in events]


async def test_replicas_in_memory_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "2")

    assert await told_at_start("memory://") == [EventName.SINK_IN_PROCESS]
    assert "SERVES ONLY ONE" in caplog.text


async def test_one_process_in_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)

    assert await told_at_start("memory://") == []


async def test_replicas_on_one_file_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "2")

    assert await told_at_start(f"sqlite:///{tmp_path}/desk.db") == []
