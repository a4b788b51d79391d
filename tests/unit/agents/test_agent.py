"""Agents as a user writes them, and what they are told when something cannot work."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest

from signoff.agents.agent import Agent, Persona, PromptContext
from signoff.agents.ask import ask
from signoff.agents.delegate import Delegate
from signoff.agents.registry import AgentRegistry
from signoff.domain.actor import Actor
from signoff.domain.call import ToolKind
from signoff.domain.elicitation import Option, Question
from signoff.domain.thread import Thread
from signoff.elicitation.intake import Intake, IntakeWhen
from signoff.errors import ConfigurationError, InvalidInput
from signoff.ports.model import ModelEvent, Prompt, TextDelta
from signoff.testing.clock import FakeClock
from signoff.tools.arguments import InvalidArguments
from signoff.tools.decorator import tool
from signoff.tools.definition import define_tool
from signoff.tools.invoke import Asked, invoke
from tests.unit.tools.support import a_context


@tool
async def look(order_id: str) -> str:
    return order_id


@tool(kind="action")
async def refund(order_id: str, cents: int) -> str:
    return order_id


def an_agent(name: str = "desk", **changes: Any) -> Agent:
    fields: dict[str, Any] = {"instructions": "Help.", "model": "openai:gpt-5-mini", "tools": [look, refund]}
    return Agent(name, **{**fields, **changes})


def a_prompt_context(persona: Persona | None = None) -> PromptContext:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    thread = Thread(id="thread_1", actor_id="ana", created_at=moment, updated_at=moment)
    return PromptContext(actor=Actor(id="ana"), thread=thread, agent="desk", today=moment.date(), persona=persona)


def test_an_agent_has_its_tools_and_delegations() -> None:
    clerk = an_agent("clerk", description="Knows invoices.")
    desk = an_agent(delegates_to=[clerk, Delegate("desk", detached=True, roles={"admin"})])

    assert desk.toolset.names == ("look", "refund", "ask_clerk", "start_desk")
    delegating = desk.toolset.get("ask_clerk")
    assert delegating is not None
    assert delegating.kind is ToolKind.AGENT
    assert delegating.description == "Hand a task to the agent 'clerk' and get its answer. Knows invoices."
    assert delegating.schema["required"] == ["task"]
    assert delegating.parse({"task": "count"}).arguments == {"task": "count"}
    starting = desk.delegate("start_desk")
    assert starting is not None
    assert (starting.target, starting.detached) == ("desk", True)
    detached = desk.toolset.get("start_desk")
    assert detached is not None
    assert detached.roles == frozenset({"admin"})


async def _async_instructions(context: PromptContext) -> str:
    return f"{context.actor.id} on {context.today}"


@pytest.mark.parametrize(
    ("instructions", "prompt"),
    [
        ("Help.", "Help."),
        (lambda context: f"Help {context.actor.id} with {context.thread.id}.", "Help ana with thread_1."),
        (_async_instructions, f"ana on {date(2026, 1, 2)}"),
        ("", ""),
    ],
)
async def test_instructions_are_text_or_a_function(instructions: Any, prompt: str) -> None:
    assert await an_agent(instructions=instructions).instructions_for(a_prompt_context()) == prompt


async def test_a_persona_adds_to_the_instructions() -> None:
    brief = Persona("brief", label="Brief", instructions="Be brief.")
    desk = an_agent(personas=[brief], default_persona="brief")

    assert desk.persona(None) is brief
    assert desk.persona("brief") is brief
    assert desk.persona("other") is None
    assert await desk.instructions_for(a_prompt_context(brief)) == "Help.\n\nBe brief."


async def test_instructions_that_are_no_text_are_named() -> None:
    with pytest.raises(ConfigurationError, match="instructions of agent 'desk' must be text, not a NoneType"):
        await an_agent(instructions=lambda context: None).instructions_for(a_prompt_context())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "the desk"}, "'the desk' is no agent name"),
        ({"name": "x" * 59}, "is no agent name"),
        ({"max_steps": 0}, "max_steps of agent 'desk' must be at least 1, not 0"),
        ({"history_messages": 0}, "history_messages of agent 'desk' must be at least 1"),
        ({"history_tokens": -1}, "history_tokens of agent 'desk' must be at least 1"),
        ({"tools": [look, look]}, "agent 'desk' has two tools named 'look'"),
        ({"tools": [len]}, "is no tool; decorate it with @tool"),
        ({"delegates_to": ["a", "a"]}, "agent 'desk' has two tools named 'ask_a'"),
        ({"delegates_to": ["a b"]}, "'ask_a b' is no tool name"),
        ({"delegates_to": [Delegate("a"), Delegate("a", detached=True)]}, None),
        ({"personas": [Persona("p", tools=["refnd"])]}, "persona 'p' of agent 'desk' allows the tool 'refnd', which"),
        ({"personas": [Persona("p", tools="look")]}, "tools of persona 'p' must be a list of names"),
        ({"personas": [Persona("p", tools=["ask_a"])], "delegates_to": ["a"]}, None),
        ({"personas": [Persona("p"), Persona("p")]}, "agent 'desk' has two personas named 'p'"),
        ({"personas": [Persona("p")], "default_persona": "q"}, "agent 'desk' has no persona 'q' to be the default"),
        ({"settings": {"temperature": float("nan")}}, "settings of agent 'desk' cannot be stored"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else str(value)[:50],
)
def test_what_cannot_work_names_agent_and_fix(changes: dict[str, Any], complaint: str | None) -> None:
    if complaint is None:
        an_agent(**changes)
        return
    with pytest.raises(ConfigurationError, match=complaint):
        an_agent(**changes)


class Scripted:
    name = "scripted:v1"

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        yield TextDelta(text="unused")


def _other_look(order_id: int) -> str:
    return str(order_id)


def _instructions(context: PromptContext) -> str:
    return "a"


@pytest.mark.parametrize(
    ("change", "changes_it"),
    [
        ({"instructions": "Help!"}, True),
        ({"instructions": _instructions}, True),
        ({"model": None}, True),
        ({"model": Scripted()}, True),
        ({"tools": [look]}, True),
        ({"tools": [define_tool(_other_look, name="look"), refund]}, True),
        ({"tools": [look, define_tool(refund, kind="read")]}, True),
        ({"personas": [Persona("p")]}, True),
        ({"description": "A desk."}, False),
        ({"max_steps": 3}, False),
        ({}, False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else str(value),
)
def test_the_fingerprint_follows_the_definition(change: dict[str, Any], changes_it: bool) -> None:
    assert (an_agent(**change).fingerprint() != an_agent().fingerprint()) is changes_it


def test_a_registry_finds_agents_and_the_first_is_the_default() -> None:
    clerk = an_agent("clerk")
    desk = an_agent(delegates_to=[clerk, "desk"])
    registry = AgentRegistry([desk, clerk])

    assert registry.default is desk
    assert registry.names == ("desk", "clerk")
    assert registry.get("clerk") is clerk
    assert registry.get("boss") is None


@pytest.mark.parametrize(
    ("agents", "complaint"),
    [
        (lambda: [], "there is no agent"),
        (lambda: [an_agent(), an_agent()], "two agents named 'desk'"),
        (lambda: [an_agent(delegates_to=["boss"])], "agent 'desk' delegates to 'boss', which is not registered"),
        (lambda: [an_agent(delegates_to=[an_agent("clerk")])], "delegates to 'clerk', which is not registered"),
        (
            lambda: [an_agent(delegates_to=[an_agent("clerk")]), an_agent("clerk")],
            "delegates to 'clerk', which is another agent of the same name",
        ),
    ],
)
def test_a_registry_refuses_what_cannot_work(agents: Callable[[], list[Agent]], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        AgentRegistry(agents())


COLOUR: dict[str, Any] = {"id": "c", "prompt": "Which?", "options": [{"value": "r", "label": "Red"}], "defaults": ["r"]}


def test_the_ask_tool_is_offered_like_any_other() -> None:
    desk = an_agent(tools=[look, ask])
    told = ask.offered()

    assert desk.toolset.names == ("look", "ask")
    assert ask.kind is ToolKind.ASK
    assert "allowFreeText" in str(told.schema)
    assert told.description.startswith("Ask the user one to five questions")


async def test_asking_parks_on_the_question_set() -> None:
    bound = ask.parse({"preamble": "For the wall.", "questions": [COLOUR]})

    outcome = await invoke(ask, bound, a_context(), clock=FakeClock(), output_bytes_max=10_000)

    assert outcome == Asked(request={"preamble": "For the wall.", "questions": [COLOUR]}, index=0)


@pytest.mark.parametrize(
    ("questions", "complaint"),
    [
        ([], "questions: List should have at least 1 item"),
        ([{**COLOUR, "id": f"q{index}"} for index in range(6)], "questions: List should have at most 5 items"),
        ([{"id": "x", "prompt": "?"}], r"questions\[0\]: a pick needs options"),
        ([{**COLOUR, "defaults": ["b"]}], r"questions\[0\]: every default must be the value of an option"),
        ([{**COLOUR, "colour": 1}], r"questions\[0\]\.colour: Extra inputs are not permitted"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_malformed_ask_goes_back_to_the_model(questions: list[Any], complaint: str) -> None:
    with pytest.raises(InvalidArguments, match=complaint):
        ask.parse({"questions": questions})


def test_an_intake_is_checked_when_it_is_written() -> None:
    question = Question(id="c", prompt="Which?", options=(Option(value="r", label="Red"),), defaults=("r",))
    intake = Intake([question], preamble="First:")

    assert intake.when is IntakeWhen.THREAD_START
    assert an_agent(intake=intake).intake is intake
    assert intake.question_set().as_json() == {"preamble": "First:", "questions": [COLOUR]}
    assert Intake([COLOUR], when="every-turn").when is IntakeWhen.EVERY_TURN
    with pytest.raises(InvalidInput, match="questions"):
        Intake([])
    with pytest.raises(ValueError, match="hourly"):
        Intake([COLOUR], when="hourly")
