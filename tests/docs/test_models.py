"""What docs/models.md shows, done as it shows it."""

import pytest

from signoff import Actor, SendRequest, Signoff
from signoff.adapters.models.providers import PydanticAiCatalog
from signoff.domain.jsonvalue import JsonObject
from signoff.testing.strict import StrictModel
from tests.docs_snippets import run, snippets
from tests.unit.models import dialects
from tests.unit.models.http_server import Request, Response, running_server

PAGE = "docs/models.md"
OWN_SERVER, READY_MODEL, TESTS = snippets(PAGE)
ANA = Actor(id="ana")


async def frames_of(app: Signoff, message: str) -> list[JsonObject]:
    started = await app.send(ANA, SendRequest(message=message))
    attached = await app.attach(ANA, started.run_id, even_ended=True)
    return [numbered.frame async for numbered in attached.frames]


def text_of(frames: list[JsonObject]) -> str:
    return "".join(str(frame["text"]) for frame in frames if frame["kind"] == "text")


async def test_a_server_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(_: Request, response: Response) -> None:
        await response.events(dialects.openai_chat(calls=()))
        await response.end()

    async with running_server() as server:
        server.handlers = [handler]
        monkeypatch.setenv("LOCAL_MODELS_URL", f"{server.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "not-for-you")
        names = run(OWN_SERVER, page=PAGE)
        app, models = names["app"], names["models"]
        assert isinstance(app, Signoff)
        assert isinstance(models, PydanticAiCatalog)
        async with app.running():
            frames = await frames_of(app, "Hello")
        await models.aclose()

    (request,) = server.requests
    assert text_of(frames) == "Looking both up."
    assert request.body["model"] == "qwen3"
    assert request.body["temperature"] == 0
    assert "not-for-you" not in str(request.headers)
    [finish] = [frame for frame in frames if frame["kind"] == "step-finish"]
    assert "costUsd" not in finish


def test_a_ready_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_KEY", "sk-test")

    catalog = run(READY_MODEL, page=PAGE)["catalog"]

    assert isinstance(catalog, PydanticAiCatalog)
    assert catalog.model("claude").name == "claude"


async def test_a_scripted_conversation() -> None:
    names = run(TESTS, page=PAGE)
    app, model = names["app"], names["model"]
    assert isinstance(app, Signoff)
    assert isinstance(model, StrictModel)

    async with app.running():
        whole = await frames_of(app, "Where is A1?")
        broken = await frames_of(app, "Fail")

    assert text_of(whole) == "Let me look.It is at sea."
    [output] = [frame["output"] for frame in whole if frame["kind"] == "tool-output"]
    assert output == {"order_id": "A1", "at": "sea"}
    assert text_of(broken) == "Let me"
    assert broken[-1]["kind"] == "error"
    assert model.refusals == []
