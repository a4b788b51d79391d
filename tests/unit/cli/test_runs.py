"""`signoff runs` and `signoff replay-check`, on a database that a real application has left."""

import asyncio
import json
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

from signoff import Actor, Agent, SendRequest, Signoff, tool
from signoff.adapters.system import SystemClock
from signoff.cli import app as command
from signoff.demo.model import DemoModel
from signoff.domain.jsonvalue import JsonObject, as_object, decode

ANA = Actor(id="ana", roles=frozenset({"USER"}))


@tool(name="purgeCache", kind="action")
async def purge_cache(key: str) -> str:
    """Throw away what is cached under a key."""
    return key


def application(database: str, *, durable: bool | Literal["strict"] = "strict") -> Signoff:
    desk = Agent("desk", instructions="Help.", tools=[purge_cache])
    return Signoff(agents=[desk], model=DemoModel(SystemClock()), database=database, durable=durable)


class Left:
    """What the application left behind: a completed, a failed and a parked run."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.completed = ""
        self.failed = ""
        self.parked = ""

    async def make(self) -> None:
        app = application(self.database)
        async with app.running():
            self.completed = await self._play(app, "hello")
            self.failed = await self._play(app, "boom")
            self.parked = await self._play(app, "purge news")

    async def _play(self, app: Signoff, message: str) -> str:
        started = await app.send(ANA, SendRequest(message=message))
        attached = await app.attach(ANA, started.run_id, even_ended=True)
        async for numbered in attached.frames:
            if numbered.frame["kind"] == "approval-requested":
                break
        return started.run_id


@pytest.fixture
def left(tmp_path: Path) -> Left:
    left = Left(f"sqlite:///{tmp_path}/desk.db")
    asyncio.run(left.make())
    return left


def run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result.output


def listed(left: Left, *options: str) -> list[JsonObject]:
    rows = decode(run("runs", "list", "--database", left.database, "--json", *options))
    assert isinstance(rows, list)
    return [as_object(row, what="a row") for row in rows]


def test_lists_runs_newest_first(left: Left) -> None:
    assert [row["id"] for row in listed(left)] == [left.parked, left.failed, left.completed]
    assert [row["id"] for row in listed(left, "--parked")] == [left.parked]
    assert [row["errorCode"] for row in listed(left, "--status", "failed")] == ["run_failed"]


def test_ids_are_printed_whole(left: Left) -> None:
    table = run("runs", "list", "--database", left.database)

    assert left.parked in table
    assert "parked" in table


def test_counts_parked_runs_by_version_of_their_agent(left: Left) -> None:
    output = run("runs", "list", "--database", left.database, "--parked", "--by-fingerprint", "--json")
    counted = json.loads(output)

    assert [(row["agent"], row["runs"]) for row in counted] == [("desk", 1)]
    assert counted[0]["fingerprint"]


def test_counts_every_run_however_many(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.cli.runs._PAGE", 2)
    counted = json.loads(run("runs", "list", "--database", left.database, "--by-fingerprint", "--limit", "1", "--json"))

    assert [(row["agent"], row["runs"]) for row in counted] == [("desk", 3)]


def test_shows_what_a_parked_run_waits_for(left: Left) -> None:
    shown = run("runs", "show", left.parked, "--database", left.database)

    assert "purgeCache" in shown
    assert f"tool:{left.parked}:" in shown


def test_prints_the_journal_in_order(left: Left) -> None:
    journal = as_object(
        decode(run("runs", "journal", left.completed, "--database", left.database, "--json")), what="a journal"
    )
    entries = journal["entries"]
    assert isinstance(entries, list)
    names = [as_object(entry, what="an entry")["name"] for entry in entries]

    assert names[:2] == ["agent:parallel-tools", "agent:history-select"]
    assert names[-3:] == ["llm:0", "persist:step:0", "persist:run:end"]


def test_cancels_a_parked_run_at_once(left: Left) -> None:
    run("runs", "cancel", left.parked, "--database", left.database)

    assert listed(left, "--status", "cancelled")[0]["id"] == left.parked
    assert listed(left, "--parked") == []


def test_refuses_to_cancel_what_has_ended(left: Left) -> None:
    result = CliRunner().invoke(command, ["runs", "cancel", left.completed, "--database", left.database])

    assert result.exit_code == 1
    assert "has ended: completed" in str(result.exception)


def test_a_retried_run_is_active_again_and_goes_on_with_the_next_server(left: Left) -> None:
    run("runs", "retry", left.failed, "--database", left.database)
    assert left.failed in [row["id"] for row in listed(left, "--status", "running")]

    async def serve() -> list[str]:
        app = application(left.database)
        async with app.running():
            attached = await app.attach(ANA, left.failed, even_ended=True)
            return [str(numbered.frame["kind"]) async for numbered in attached.frames]

    kinds = asyncio.run(serve())
    assert kinds[-1] == "error"  # the script fails again: one ending, the earlier one is withdrawn
    assert kinds.count("error") == 1


def test_prunes_what_ended_and_keeps_what_is_parked(left: Left) -> None:
    assert "pruned: 2" in run("runs", "prune", "--older-than-days", "0", "--database", left.database)

    assert [row["id"] for row in listed(left)] == [left.parked]


def test_prunes_what_ran_inline(left: Left) -> None:
    async def play() -> str:
        app = application(left.database, durable=False)
        async with app.running():
            started = await app.send(ANA, SendRequest(message="hello"))
            attached = await app.attach(ANA, started.run_id, even_ended=True)
            return [str(numbered.frame["kind"]) async for numbered in attached.frames][-1]

    assert asyncio.run(play()) == "done"

    assert "pruned: 3" in run("runs", "prune", "--older-than-days", "0", "--database", left.database)
    assert [row["id"] for row in listed(left)] == [left.parked]


def test_replay_check_passes_on_the_code_that_recorded(
    left: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "desk_for_replay.py").write_text(
        f"from tests.unit.cli.test_runs import application\napp = application({left.database!r})\n"
    )
    output = run("replay-check", "desk_for_replay:app", "--database", left.database)

    assert "1 replayed, 0 diverged" in output


def test_replay_check_names_the_first_position_that_differs(
    left: Left, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "desk_for_divergence.py").write_text(
        f"from tests.unit.cli.test_runs import application\napp = application({left.database!r})\n"
    )
    folder = tmp_path / "journals"
    folder.mkdir()
    path = folder / "completed.json"
    run("runs", "export", left.completed, "--database", left.database, "--output", str(path))
    path.write_text(path.read_text().replace("quota:check", "quota:older"))

    output = run("replay-check", "desk_for_divergence:app", "--journals", str(folder), "--json", exit_code=1)

    assert json.loads(output) == [
        {
            "runId": left.completed,
            "ok": False,
            "replayed": 4,
            "position": 4,
            "expected": "record:quota:older",
            "found": "record:quota:check",
        }
    ]


def test_replay_check_wants_one_source(left: Left) -> None:
    result = CliRunner().invoke(command, ["replay-check", "desk:app"])

    assert "--journals DIR or --database URL" in str(result.exception)
