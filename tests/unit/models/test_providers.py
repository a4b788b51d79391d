"""Real provider clients against a server on a local socket: what arrives at our port, and what leaves."""

import asyncio
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import TypeAlias

import pytest

from signoff.adapters.models.providers import OpenAICompatible, PydanticAiCatalog
from signoff.domain.run import Usage
from signoff.errors import ConfigurationError, ModelError
from signoff.ports.model import (
    AssistantMessage,
    CallDelta,
    CallRequest,
    CallResult,
    CallStarted,
    Model,
    ModelEvent,
    OfferedTool,
    Prompt,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    UserMessage,
)
from tests.unit.models import dialects
from tests.unit.models.http_server import Handler, JsonBody, Request, Response, Server, running_server

KEY = "sk-proj-do-not-show-me"
QUESTION = Prompt(
    instructions="Be brief.",
    messages=[UserMessage(text="Where are A1 and B2?")],
    tools=[
        OfferedTool(
            name="get_order",
            description="Look an order up.",
            schema={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
        )
    ],
)

Dialect: TypeAlias = Callable[[], list[JsonBody | str]]

NAMES: dict[str, Dialect] = {
    "openai:gpt-5-mini": dialects.openai_responses,
    "local:gpt-5-mini": dialects.openai_chat,
    "anthropic:claude-haiku-4-5": dialects.anthropic,
}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    async with running_server() as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@pytest.fixture
async def catalog(server: Server) -> AsyncIterator[PydanticAiCatalog]:
    local = OpenAICompatible(base_url=f"{server.url}/v1", api_key=KEY, name="openai")
    catalog = PydanticAiCatalog(providers={"local": local})
    yield catalog
    await catalog.aclose()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def streams(events: list[JsonBody | str]) -> Handler:
    async def handler(_: Request, response: Response) -> None:
        await response.events(events)
        await response.end()

    return handler


def answers(status: int, body: JsonBody) -> Handler:
    async def handler(_: Request, response: Response) -> None:
        await response.json(status, body)

    return handler


async def reply(model: Model, prompt: Prompt = QUESTION) -> list[ModelEvent]:
    return [event async for event in model.reply(prompt)]


# --- what arrives -------------------------------------------------------------------------------------------


async def test_a_reply_arrives_as_it_was_streamed(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    server.handlers = [streams(NAMES[name]())]

    *deltas, finished = await reply(catalog.model(name))

    assert deltas == [
        ReasoningDelta(text="Two orders."),
        TextDelta(text="Looking "),
        TextDelta(text="both up."),
        CallStarted(index=0, provider_id="call_a", name="get_order"),
        CallStarted(index=1, provider_id="call_b", name="get_order"),
        CallDelta(index=0, arguments='{"order_id":'),
        CallDelta(index=1, arguments='{"order_id":'),
        CallDelta(index=0, arguments=' "A1"}'),
        CallDelta(index=1, arguments=' "B2"}'),
    ]
    assert isinstance(finished, ReplyFinished)
    assert finished.model == name.partition(":")[2]


async def test_tokens_and_cost_of_openai(server: Server, catalog: PydanticAiCatalog) -> None:
    """600 fresh tokens at 0.25, 400 cached at 0.025 and 50 out at 2 dollars a million."""
    server.handlers = [streams(dialects.openai_responses())]

    finished = (await reply(catalog.model("openai:gpt-5-mini")))[-1]

    assert finished == ReplyFinished(
        usage=Usage(input_tokens=1000, output_tokens=50, cache_read_tokens=400, reasoning_tokens=20),
        model="gpt-5-mini",
        cost_usd=Decimal("0.00026"),
    )


async def test_cached_tokens_of_anthropic_count_as_input(server: Server, catalog: PydanticAiCatalog) -> None:
    """Anthropic reports them beside the input; the port has one convention. 1, 0.1 and 5 dollars a million."""
    server.handlers = [streams(dialects.anthropic())]

    finished = (await reply(catalog.model("anthropic:claude-haiku-4-5")))[-1]

    assert finished == ReplyFinished(
        usage=Usage(input_tokens=1000, output_tokens=50, cache_read_tokens=400),
        model="claude-haiku-4-5",
        cost_usd=Decimal("0.00089"),
    )


async def test_a_private_server_has_no_price_even_for_a_public_name(server: Server) -> None:
    server.handlers = [streams(dialects.openai_chat())]
    catalog = PydanticAiCatalog(providers={"local": OpenAICompatible(base_url=f"{server.url}/v1")})

    finished = (await reply(catalog.model("local:gpt-5-mini")))[-1]
    await catalog.aclose()

    assert isinstance(finished, ReplyFinished)
    assert finished.usage.input_tokens == 1000
    assert finished.cost_usd is None


async def test_a_call_without_arguments_is_an_empty_object(server: Server, catalog: PydanticAiCatalog) -> None:
    without = [
        event
        for event in dialects.anthropic()
        if not (isinstance(event, dict) and event.get("delta", {}).get("type") == "input_json_delta")
    ]
    server.handlers = [streams(without)]

    events = await reply(catalog.model("anthropic:claude-haiku-4-5"))

    assert [event for event in events if isinstance(event, CallDelta)] == [
        CallDelta(index=0, arguments="{}"),
        CallDelta(index=1, arguments="{}"),
    ]


# --- what leaves --------------------------------------------------------------------------------------------

AFTER_TWO_CALLS = Prompt(
    instructions="Be brief.",
    messages=[
        UserMessage(text="Where are A1 and B2?"),
        AssistantMessage(
            text=" ",
            calls=(
                CallRequest(id="run_1:call_1", name="get_order", arguments={"order_id": "A1"}),
                CallRequest(id="call_01", name="get_order", arguments={"order_id": "B2"}),
            ),
        ),
        CallResult(id="run_1:call_1", name="get_order", output=[{"id": "A1"}, {"at": "sea"}]),
        CallResult(id="call_01", name="get_order", output="no such order", is_error=True),
        UserMessage(text="And?"),
    ],
    tools=QUESTION.tools,
    settings={"temperature": 0.5},
)


async def test_history_for_openai_chat(server: Server, catalog: PydanticAiCatalog) -> None:
    server.handlers = [streams(dialects.openai_chat())]

    await reply(catalog.model("local:gpt-4.1"), AFTER_TWO_CALLS)

    (request,) = server.requests
    system, question, asked, first, second, more = request.body["messages"]
    assert request.path == "/v1/chat/completions"
    assert request.body["temperature"] == 0.5
    assert request.body["tools"][0]["function"]["name"] == "get_order"
    assert request.body["tools"][0]["function"]["parameters"]["required"] == ["order_id"]
    assert system == {"role": "system", "content": "Be brief."}
    assert question == {"role": "user", "content": "Where are A1 and B2?"}
    assert [call["id"] for call in asked["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert asked["tool_calls"][0]["function"] == {"name": "get_order", "arguments": '{"order_id":"A1"}'}
    assert not (asked.get("content") or "").strip()
    assert first["content"] == '[{"id":"A1"},{"at":"sea"}]'
    assert "no such order" in second["content"]
    assert more == {"role": "user", "content": "And?"}


async def test_history_for_anthropic(server: Server, catalog: PydanticAiCatalog) -> None:
    server.handlers = [streams(dialects.anthropic())]

    await reply(catalog.model("anthropic:claude-haiku-4-5"), AFTER_TWO_CALLS)

    (request,) = server.requests
    _, asked, answered = request.body["messages"]
    calls, results = asked["content"], answered["content"]
    assert [block["type"] for block in calls] == ["tool_use", "tool_use"]
    assert [block["type"] for block in results] == ["tool_result", "tool_result", "text"]
    assert [block["id"] for block in calls] == [block["tool_use_id"] for block in results[:2]]
    assert calls[0]["input"] == {"order_id": "A1"}
    assert [block["is_error"] for block in results[:2]] == [False, True]
    assert [block["text"] for block in results[0]["content"]] == ['[{"id":"A1"},{"at":"sea"}]']


async def test_history_for_openai_responses(server: Server, catalog: PydanticAiCatalog) -> None:
    server.handlers = [streams(dialects.openai_responses())]

    await reply(catalog.model("openai:gpt-4.1"), AFTER_TWO_CALLS)

    (request,) = server.requests
    kinds = [item.get("type", item.get("role")) for item in request.body["input"]]
    ids = [item["call_id"] for item in request.body["input"] if "call_id" in item]
    assert request.path == "/v1/responses"
    assert request.body["instructions"] == "Be brief."
    assert kinds == ["user", "function_call", "function_call", "function_call_output", "function_call_output", "user"]
    assert ids[:2] == ids[2:]
    assert ids[1] == "call_01"


async def test_ids_that_a_provider_would_refuse_are_replaced(
    server: Server, catalog: PydanticAiCatalog, name: str
) -> None:
    server.handlers = [streams(NAMES[name]())]

    await reply(catalog.model(name), replace(AFTER_TWO_CALLS, settings={}))

    assert "run_1:call_1" not in str(server.requests[0].body)
    assert "call_01" in str(server.requests[0].body)


# --- what goes wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "transient"),
    [
        (400, False),
        (404, False),
        (408, True),
        (409, True),
        (422, False),
        (429, True),
        (500, True),
        (503, True),
        (529, True),
    ],
)
async def test_statuses(server: Server, catalog: PydanticAiCatalog, name: str, status: int, transient: bool) -> None:
    server.handlers = [answers(status, {"error": {"type": "some_error", "message": "the sky fell"}})]

    with pytest.raises(ModelError, match=f"HTTP {status}: the sky fell") as caught:
        await reply(catalog.model(name))

    assert caught.value.transient is transient
    assert len(server.requests) == 1, "the engine retries, the client library must not"


async def test_after_429_the_next_attempt_succeeds(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    server.handlers = [answers(429, {"error": {"message": "slow down"}}), streams(NAMES[name]())]
    model = catalog.model(name)

    with pytest.raises(ModelError) as caught:
        await reply(model)
    assert caught.value.transient

    assert isinstance((await reply(model))[-1], ReplyFinished)


async def test_refused_credentials_do_not_show_the_key(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    server.handlers = [answers(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})]

    with pytest.raises(ModelError, match=r"refused the credentials \(HTTP 401\)") as caught:
        await reply(catalog.model(name))

    assert not caught.value.transient
    assert KEY not in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value)), "what a log would hold"


async def test_a_key_that_a_server_echoes_is_masked(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    server.handlers = [answers(500, {"error": {"message": f"could not log Bearer {KEY}"}})]

    with pytest.raises(ModelError, match=r"could not log Bearer \*\*\*$"):
        await reply(catalog.model(name))


async def test_a_spent_quota_is_not_worth_another_attempt(server: Server, catalog: PydanticAiCatalog) -> None:
    body = {"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "You exceeded your quota"}}
    server.handlers = [answers(429, body)]

    with pytest.raises(ModelError, match="used up") as caught:
        await reply(catalog.model("openai:gpt-5-mini"))

    assert not caught.value.transient


async def test_a_server_that_dies_in_the_middle(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    async def handler(_: Request, response: Response) -> None:
        await response.events(NAMES[name]()[:8])
        response.drop()

    server.handlers = [handler]

    with pytest.raises(ModelError, match=r"broke off|cannot be reached") as caught:
        await reply(catalog.model(name))

    assert caught.value.transient


async def test_a_stream_that_ends_too_early(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    """A proxy may end a broken stream politely; half a reply must not pass for a whole one."""
    server.handlers = [streams(NAMES[name]()[:5])]

    with pytest.raises(ModelError, match=r"broke off|ended without") as caught:
        await reply(catalog.model(name))

    assert caught.value.transient


async def test_an_error_event_in_the_stream(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    events = NAMES[name]()[:5]
    overloaded = {"type": "overloaded_error", "code": "server_error", "message": "Overloaded"}
    match name.partition(":")[0]:
        case "openai":
            events.append({"type": "error", "sequence_number": 9, "code": "server_error", "message": "Overloaded"})
        case "anthropic":
            events.append({"type": "error", "error": overloaded})
        case _:
            events.append({"error": overloaded})
    server.handlers = [streams(events)]

    with pytest.raises(ModelError, match="Overloaded") as caught:
        await reply(catalog.model(name))

    assert caught.value.transient


async def test_nobody_listens(catalog: PydanticAiCatalog, name: str, server: Server, unused_tcp_port: int) -> None:
    nowhere = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", nowhere)
        patch.setenv("ANTHROPIC_BASE_URL", nowhere)
        lonely = PydanticAiCatalog(providers={"local": OpenAICompatible(base_url=nowhere)})
        model = lonely.model(name)

    with pytest.raises(ModelError, match=r"the provider cannot be reached") as caught:
        await reply(model)
    await lonely.aclose()

    assert caught.value.transient


async def test_a_silent_server_times_out(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    async def handler(_: Request, response: Response) -> None:
        await response.client_gone()

    server.handlers = [handler]
    prompt = Prompt(instructions="", messages=QUESTION.messages, settings={"timeout": 0.05})

    with pytest.raises(ModelError, match="did not answer in time") as caught:
        await reply(catalog.model(name), prompt)

    assert caught.value.transient


# --- who stops listening ------------------------------------------------------------------------------------


class Hanging:
    """Streams the beginning of a reply, then waits until the client is gone."""

    def __init__(self, events: list[JsonBody | str]) -> None:
        self._events = events
        self.gone = asyncio.Event()

    async def __call__(self, request: Request, response: Response) -> None:
        await response.events(self._events)
        await response.client_gone()
        self.gone.set()
        response.drop()


async def test_cancelling_the_task_closes_the_connection(server: Server, catalog: PydanticAiCatalog, name: str) -> None:
    hanging = Hanging(NAMES[name]()[:8])
    server.handlers = [hanging]
    listening = asyncio.Event()

    async def consume() -> None:
        async for event in catalog.model(name).reply(QUESTION):
            if event == TextDelta(text="Looking "):
                listening.set()

    task = asyncio.create_task(consume())
    heard = asyncio.create_task(listening.wait())
    await asyncio.wait({task, heard}, return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.wait_for(hanging.gone.wait(), timeout=5)


async def test_closing_the_iterator_closes_the_connection(
    server: Server, catalog: PydanticAiCatalog, name: str
) -> None:
    hanging = Hanging(NAMES[name]()[:8])
    server.handlers = [hanging]

    events = catalog.model(name).reply(QUESTION)
    async with aclosing(events):  # type: ignore[type-var]  # the port promises less than a generator
        await anext(events)

    await asyncio.wait_for(hanging.gone.wait(), timeout=5)


async def test_connections_are_kept_until_closed_and_open_again(server: Server, catalog: PydanticAiCatalog) -> None:
    ports: list[int] = []

    async def handler(_: Request, response: Response) -> None:
        ports.append(response.client_port)
        await response.events(dialects.openai_chat())
        await response.end()

    server.handlers = [handler]
    model = catalog.model("local:gpt-5-mini")
    for _ in range(2):
        await reply(model)
    await catalog.aclose()
    await reply(model)

    assert [one == two for one, two in pairwise(ports)] == [True, False]


# --- names --------------------------------------------------------------------------------------------------


def test_a_name_gives_the_same_model_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    catalog = PydanticAiCatalog()

    model = catalog.model("openai:gpt-5-mini")

    assert model.name == "openai:gpt-5-mini"
    assert catalog.model("openai:gpt-5-mini") is model


async def test_a_ready_model_goes_by_its_own_name() -> None:
    from pydantic_ai.models.test import TestModel

    catalog = PydanticAiCatalog(models={"mine": TestModel(custom_output_text="hello", call_tools=[])})

    events = await reply(catalog.model("mine"))

    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "hello"


async def test_arguments_that_come_as_values(server: Server) -> None:
    """Some providers send arguments as an object; the port promises JSON text."""
    from pydantic_ai.models.test import TestModel

    events = await reply(PydanticAiCatalog(models={"mine": TestModel()}).model("mine"))

    assert CallStarted in {type(event) for event in events}
    assert [event.arguments for event in events if isinstance(event, CallDelta)] == ['{"order_id":"a"}']


@pytest.mark.parametrize(
    ("name", "variable"), [("openai:gpt-5", "OPENAI_API_KEY"), ("anthropic:c", "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_is_named_at_start(monkeypatch: pytest.MonkeyPatch, name: str, variable: str) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(ConfigurationError, match=f"{name}.*set the environment variable {variable}"):
        PydanticAiCatalog().model(name)


@pytest.mark.parametrize("name", ["gpt-5-mini", ":gpt-5-mini", "openai:", ""])
def test_a_name_without_a_provider_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="<provider>:<model>"):
        PydanticAiCatalog().model(name)


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nobody:gpt"):
        PydanticAiCatalog().model("nobody:gpt")


@pytest.mark.parametrize(
    ("name", "missing", "install"),
    [
        ("openai:gpt-5", ["pydantic_ai"], r"pip install 'signoff\[openai\]'"),
        ("anthropic:claude", ["pydantic_ai"], r"pip install 'signoff\[anthropic\]'"),
        ("groq:llama", ["groq", "pydantic_ai.providers.groq"], r"pip install 'pydantic-ai-slim\[groq\]'"),
    ],
)
def test_a_missing_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, missing: list[str], install: str
) -> None:
    for module in [module for module in sys.modules if module.startswith("signoff.adapters.models.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in [module for module in sys.modules if module.split(".")[0] in missing]:
        monkeypatch.delitem(sys.modules, module)
    for module in missing[:1]:
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigurationError, match=install):
        PydanticAiCatalog().model(name)


def test_provider_libraries_are_not_imported_before_a_name_needs_them() -> None:
    script = """
import sys
from signoff import Agent, Signoff
from signoff.adapters.models.providers import OpenAICompatible, PydanticAiCatalog
catalog = PydanticAiCatalog(providers={"local": OpenAICompatible(base_url="http://localhost/v1")})
desk = Agent("desk", instructions="", model="local:qwen3")
Signoff(agents=[desk], models=catalog, database="memory://", durable=False)
print(sorted({"pydantic_ai", "openai", "anthropic", "genai_prices"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_key_is_not_shown() -> None:
    assert KEY not in repr(OpenAICompatible(base_url="http://localhost/v1", api_key=KEY))
