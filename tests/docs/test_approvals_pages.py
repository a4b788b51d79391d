"""The pages on approvals and the audit: their code runs, and what they say of it holds."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from signoff import Actor, Agent, RulesPolicy, Signoff
from signoff.adapters.stores.sql import SqlStore
from signoff.cli import app as command
from signoff.domain.audit import AuditKind
from signoff.testing.clock import START
from signoff.testing.scripted import ask_for
from signoff.testing.stores import memory_stores
from signoff.testing.world import World
from tests.docs_snippets import run, snippets


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("WEBHOOK_SECRET", "w" * 32)
    monkeypatch.setenv("LINK_SECRET", "l" * 32)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    return run(snippets("docs/approvals.md")[0], page="docs/approvals.md")


async def test_the_approvals_page_asks_whom_it_says(names: dict[str, object]) -> None:
    policy, desk = names["policy"], names["desk"]
    assert isinstance(policy, RulesPolicy)
    assert isinstance(desk, Agent)
    assert isinstance(names["app"], Signoff)
    ana = Actor(id="ana", roles=frozenset({"support"}))
    world = World(
        memory_stores(),
        durable=False,
        script={
            "large": [ask_for("refund", {"order_id": "A1", "cents": 5001}), "Done."],
            "usual": [ask_for("refund", {"order_id": "A1", "cents": 5000}), "Done."],
            "small": [ask_for("refund", {"order_id": "A1", "cents": 100}), "Done."],
        },
        agents=[desk],
        policy=policy,
    )
    await world.start()
    try:
        await world.send("large", by=ana)
        card = await world.card()
        assert (card.approver, card.quorum, card.may_requester) == ("finance", 2, False)
        assert card.expires_at == START + timedelta(hours=4)
        await world.send("usual", by=ana)
        assert (await world.card()).approver == "requester"
        await world.send("small", by=ana)
        await world.completed()
    finally:
        await world.close()


async def test_an_export_is_checked_by_the_audit_page(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/desk.db")
    await store.open()
    for number in range(5):
        for tenant in ("acme", "zeta"):
            await store.transact(
                "append",
                lambda tx: tx.append_audit(
                    tenant=tenant,  # noqa: B023  # run before the next turn
                    at=START,
                    kind=AuditKind.APPROVED,
                    run_id=None,
                    call_id=None,
                    actor_id="é\u202e",
                    data={"n": number, "float": 0.1, "text": "\x00é"},  # noqa: B023
                ),
            )
    await store.close()
    [check] = snippets("docs/audit.md")
    # In a thread: the command runs an event loop of its own.
    exported = await asyncio.to_thread(_command, "export", tmp_path)

    assert _checked(check, exported) == ""
    assert "row 3 was changed" in _checked(check, exported.replace('"n":2', '"n":7', 1))
    lines = exported.splitlines(keepends=True)
    assert "does not follow" in _checked(check, "".join([*lines[:1], *lines[2:]]))


def _command(verb: str, folder: Path) -> str:
    done = CliRunner().invoke(command, ["audit", verb, "--database", f"sqlite:///{folder}/desk.db"])
    assert done.exit_code == 0
    return done.stdout


def _checked(source: str, exported: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], input=exported, capture_output=True, text=True, timeout=60, check=False
    ).stderr
