"""The pages' code runs as it is shown."""

from pathlib import Path

import pytest

from signoff import Actor, DecisionRequest, HeaderActorResolver, Signoff, Verb
from signoff.agents.agent import Agent
from signoff.agents.registry import AgentRegistry
from signoff.service.send import SendRequest
from signoff.testing.scripted import ScriptedModel, ask_for, say
from tests.docs_snippets import run, snippets

ANA = Actor(id="ana", roles=frozenset({"support"}))


async def test_the_tools_page_makes_an_agent_that_refunds(tmp_path: Path) -> None:
    desk = run(snippets("docs/tools.md")[0], page="docs/tools.md")["desk"]
    assert isinstance(desk, Agent)
    model = ScriptedModel([ask_for("refund", {"order_id": "A1", "cents": 4200}), say("Refunded.")])
    app = Signoff(agents=[desk], model=model, database="memory://", durable=False, actor=HeaderActorResolver())

    async with app.running():
        started = await app.send(ANA, SendRequest(message="Refund A1, please."))
        attached = await app.attach(ANA, started.run_id, even_ended=True)
        shown = {}
        async for numbered in attached.frames:
            shown[numbered.frame["kind"]] = numbered.frame
            if numbered.frame["kind"] == "approval-requested":
                await app.decide(ANA, DecisionRequest(call_id=str(numbered.frame["id"]), verb=Verb.APPROVE))

    assert shown["approval-requested"]["confirmation"] == {"title": "Refund 42.00 EUR of order A1", "verb": "Refund"}
    assert "tool-output" in shown


def test_the_delegation_page_makes_agents_that_know_each_other() -> None:
    agents = run(snippets("docs/delegation.md")[0], page="docs/delegation.md")["agents"]
    assert isinstance(agents, list)

    registry = AgentRegistry(agents)

    assert registry.default.toolset.names == ("ask_researcher", "start_billing")


async def test_the_durability_page_makes_an_application_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = run(snippets("docs/durability.md")[0], page="docs/durability.md")["app"]
    assert isinstance(app, Signoff)

    async with app.running():
        assert app.runner.durable
