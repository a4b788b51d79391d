"""The production page: its queries run, its backup restores, and its compose file is what it says."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from signoff import Actor, Agent, DecisionRequest, SendRequest, Signoff, Verb, tool
from signoff.adapters.sinks.redis import RedisSink
from signoff.adapters.stores.sql import SqlStore
from signoff.domain.call import CallStatus
from signoff.testing.scripted import ScriptedModel, ask_for, say
from tests.conformance.store.rows import a_call, a_run, a_thread, an_outbox_entry, insert
from tests.docs_snippets import ROOT, run, snippets
from tests.services import postgres_schema

PAGE = "docs/production.md"
ANA = Actor(id="ana")


@pytest.fixture
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docs/compose.yaml").read_text()))


@pytest.fixture
def database() -> Iterator[str]:
    with postgres_schema("production") as url:
        yield url


def test_the_application_is_wired_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://signoff@localhost/signoff")
    monkeypatch.setenv("REDIS_URL", "redis://localhost")

    app = run(snippets(PAGE)[0], page=PAGE)["app"]

    assert isinstance(app, Signoff)
    assert isinstance(app.sink, RedisSink)


def test_the_compose_file_has_two_web_servers_and_three_workers(compose: dict[str, Any]) -> None:
    services = compose["services"]
    commands = {name: service["command"] for name, service in services.items()}
    servers = [name for name, command in commands.items() if command.startswith("uvicorn desk:api ")]

    assert len(servers) == 2
    assert commands["worker"] == "signoff worker desk:app"
    assert services["worker"]["deploy"]["replicas"] == 3
    for name in servers:
        assert f"--to {name}:8000" in commands["proxy"]


def test_what_the_compose_file_refers_to_is_there(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service.get("depends_on", ())) <= set(compose["services"])
        assert "image" in service or "build" in service
        for volume in service.get("volumes", ()):
            assert volume.partition(":")[0] in compose["volumes"]
    for name in ("web1", "web2", "worker"):
        environment = compose["services"][name]["environment"]
        assert "@postgres:5432/" in environment["DATABASE_URL"]
        assert "@redis:6379/" in environment["REDIS_URL"]


@pytest.mark.postgres
async def test_the_queries_find_what_they_are_for(database: str) -> None:
    store = SqlStore(database)
    await store.open()
    await insert(store, a_thread(), a_run("run_1", parked=False), a_call("call_1", status=CallStatus.IN_DOUBT))
    await store.transact("outbox", lambda tx: tx.put_outbox(an_outbox_entry("entry_1", delivered_at=None)))
    await store.close()
    queries = snippets(PAGE, "sql")[0].split("\n\n")

    def ask() -> list[list[tuple[Any, ...]]]:
        with psycopg.connect(database) as connection:
            return [connection.execute(query.encode()).fetchall() for query in queries]

    oldest, stuck, dead, workers, unsent = await asyncio.to_thread(ask)
    ((seconds, in_doubt),) = oldest
    assert (seconds > 0, in_doubt) == (True, 1)
    assert [row[0] for row in stuck] == ["run_1"]
    assert (dead, workers, unsent) == ([], [(0,)], [(1,)])


@tool(kind="action")
async def deploy(version: str) -> str:
    """Deploy a version."""
    return f"{version} is live"


def application(file: Path) -> Signoff:
    agent = Agent("ops", instructions="Deploy.", tools=[deploy])
    model = ScriptedModel([ask_for("deploy", {"version": "1.2"}), say("Done.")])
    return Signoff(agents=[agent], model=model, database=f"sqlite:///{file}", durable="strict")


async def read(app: Signoff, run_id: str, kind: str) -> dict[str, Any]:
    """The first frame of this kind."""
    async for numbered in (await app.attach(ANA, run_id, even_ended=True)).frames:
        if numbered.frame["kind"] == kind:
            return numbered.frame
    raise AssertionError(kind)


async def test_a_backup_of_a_running_desk_has_the_card_that_waits(tmp_path: Path) -> None:
    (statement,) = [line for line in (ROOT / PAGE).read_text().splitlines() if "VACUUM INTO" in line]
    statement = statement.partition('"')[2].rstrip('"').replace("backup.db", str(tmp_path / "backup.db"))
    async with application(tmp_path / "desk.db").running() as app:
        started = await app.send(ANA, SendRequest(message="Go."))
        card = await read(app, started.run_id, "approval-requested")
        with closing(sqlite3.connect(tmp_path / "desk.db")) as connection:
            connection.execute(statement)

    async with application(tmp_path / "backup.db").running() as restored:
        await restored.decide(ANA, DecisionRequest(call_id=str(card["id"]), verb=Verb.APPROVE))

        assert (await read(restored, started.run_id, "tool-output"))["output"] == "1.2 is live"
        assert await read(restored, started.run_id, "done")
