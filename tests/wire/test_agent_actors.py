"""An agent with a resolver of its own: whoever writes to it is found in another way than everybody else."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from signoff import Actor, Agent, HeaderActorResolver, Signoff
from signoff.errors import ConfigurationError
from signoff.testing.scripted import ScriptedModel


def visitor(request: Request) -> Actor | None:
    """Anonymous people with a session cookie."""
    session = request.cookies.get("session")
    return Actor(id=f"visitor:{session}") if session else None


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    agents = [Agent("desk", instructions="Help."), Agent("shop", instructions="Sell.")]
    app = Signoff(
        agents=agents,
        model=ScriptedModel(["Hello."]),
        database="memory://",
        durable=False,
        actor=HeaderActorResolver(),
        agent_actors={"shop": visitor},
    )
    api = FastAPI(lifespan=app.lifespan)
    api.include_router(app.router(), prefix="/agent")
    transport = httpx.ASGITransport(api)
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=transport, base_url="http://shop/agent") as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("agent", "headers", "status"),
    [
        ("shop", {"cookie": "session=7"}, 200),
        ("shop", {"x-actor-id": "ana"}, 401),
        ("desk", {"cookie": "session=7"}, 401),
        ("desk", {"x-actor-id": "ana"}, 200),
        (None, {"x-actor-id": "ana"}, 200),
    ],
)
async def test_the_agent_decides_who_is_asked_for_the_actor(
    http: httpx.AsyncClient, agent: str | None, headers: dict[str, str], status: int
) -> None:
    answer = await http.post("/chat", json={"message": "Hi", "agent": agent}, headers=headers)

    assert answer.status_code == status


async def test_elsewhere_a_visitor_is_nobody(http: httpx.AsyncClient) -> None:
    await http.post("/chat", json={"message": "Hi", "agent": "shop"}, headers={"cookie": "session=7"})

    assert (await http.get("/threads", headers={"cookie": "session=7"})).status_code == 401


def test_a_resolver_for_no_agent_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="'shpo'"):
        Signoff(
            agents=[Agent("shop", instructions="Sell.")],
            database="memory://",
            durable=False,
            agent_actors={"shpo": visitor},
        )
