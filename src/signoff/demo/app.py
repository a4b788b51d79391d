"""The demo's application: tools, agents, the API and the page."""

import asyncio
from datetime import timedelta
from pathlib import Path

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

from signoff import Agent, Confirmation, Delegate, HeaderActorResolver, Ready, Requirement, Signoff, ask, tool
from signoff.adapters.models.providers import PydanticAiCatalog
from signoff.adapters.system import SystemClock
from signoff.demo.model import DemoModel
from signoff.ports.model import Model, ModelCatalog

PAGE = Path(__file__).parent / "page"

#: Only what the page itself brings; an answer that smuggles in markup could load and run nothing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_INSTRUCTIONS = """You are a shop's service desk. Answer in a sentence or two. Look things up with tools rather than
guessing. Some tools wait for a person's approval: call them as soon as you know the arguments, do not ask for
permission in text. If a person rejects a call, accept it. Use `ask` when you need a choice from the user."""

_LOOK_IT_UP = """Look the topic up in the archive, keep one short note of what you found, and say what it is."""

#: Long enough to stop the server in the middle.
_BANK_S = 5.0


@tool(name="getWeather")
async def get_weather(city: str) -> dict[str, object]:
    """The current weather in a city."""
    # From the name alone, so that the same city has the same weather in every demo.
    return {"city": city, "tempC": 10 + sum(city.encode()) % 20}


@tool(name="purgeCache", kind="action", idempotent=True)
async def purge_cache(key: str) -> dict[str, object]:
    """Throw away what is cached under a key."""
    return {"purged": key}


def word_refund(orderId: str, cents: int) -> Ready:  # noqa: N803  # the names the model reads
    """The refund's card in a person's words."""
    amount = f"{cents / 100:.2f} €"
    return Ready(confirmation=Confirmation(title=f"Refund {amount} for order {orderId}?", verb=f"Refund {amount}"))


@tool(
    name="refundOrder",
    kind="action",
    prepare=word_refund,
    approval=Requirement(
        approver="ADMIN",
        ttl=timedelta(minutes=15),
        reason="Money leaves the shop, so an ADMIN signs it off. Here you change your own role under “Signed in as”.",
    ),
)
async def refund_order(orderId: str, cents: int) -> dict[str, object]:  # noqa: N803  # the names the model reads
    """Pay an order's price back, in euro cents."""
    return {"orderId": orderId, "cents": cents, "refunded": True}


@tool(name="transferMoney", kind="action", approval=Requirement(reason="It takes five seconds and cannot be undone."))
async def transfer_money(euros: int) -> dict[str, object]:
    """Send money. Slow, and nothing tells afterwards whether it happened."""
    await asyncio.sleep(_BANK_S)
    return {"euros": euros, "transferred": True}


@tool(
    name="deleteAccount",
    kind="action",
    approval=Requirement(
        approver="ADMIN",
        quorum=2,
        may_requester=False,
        reason="Two ADMINs must agree, neither of whom has asked for it. They find it under “Waiting for a decision”.",
    ),
)
async def delete_account(account: str) -> dict[str, object]:
    """Delete an account with everything in it."""
    return {"deleted": account}


@tool(name="searchArchive")
async def search_archive(topic: str) -> dict[str, object]:
    """Pages of the archive on a topic."""
    return {"topic": topic, "pages": [f"{topic}, page {number}" for number in range(1, 3 + len(topic) % 3)]}


@tool(name="saveNote", kind="action")
async def save_note(title: str, text: str) -> dict[str, object]:
    """Keep a note for everybody to read."""
    return {"saved": title, "characters": len(text)}


class DemoModels:
    """The scripted model under its name; every other name goes to a provider."""

    def __init__(self) -> None:
        self._scripted = DemoModel(SystemClock())
        self._providers = PydanticAiCatalog()

    def model(self, name: str) -> Model:
        """See `ports.model.ModelCatalog`."""
        return self._scripted if name == self._scripted.name else self._providers.model(name)

    async def aclose(self) -> None:
        """See `ports.model.ModelCatalog`."""
        await self._providers.aclose()


class Page(StaticFiles):
    """The static page, with the headers that keep it to itself."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """See `StaticFiles`."""
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        # A page that is older than its server would be hard to tell from a bug.
        response.headers["Cache-Control"] = "no-cache"
        return response


def _agents(model: str) -> list[Agent]:
    """The desk, who talks to people, and two that it can hand work to."""
    researcher, archivist = (
        Agent(
            name,
            description=description,
            instructions=_LOOK_IT_UP,
            model=model,
            tools=[search_archive, save_note],
        )
        for name, description in (
            ("researcher", "Looks a topic up in the archive and answers."),
            ("archivist", "Looks a topic up in the archive when nobody needs to wait for it."),
        )
    )
    desk = Agent(
        "desk",
        description="Looks things up, purges caches, refunds orders.",
        instructions=_INSTRUCTIONS,
        model=model,
        tools=[get_weather, purge_cache, refund_order, transfer_money, delete_account, ask],
        delegates_to=[researcher, Delegate(archivist, detached=True)],
    )
    return [desk, researcher, archivist]


def build(*, database: str, durable: bool, model: str = DemoModel.name) -> FastAPI:
    """The demo as an ASGI application: the page at ``/``, the API under ``/agent``.

    Raises:
        ConfigurationError: the model's name is unknown, its library or its key is missing.
    """
    models: ModelCatalog = DemoModels()
    models.model(model)  # a name that cannot work is told now, not in somebody's first answer
    app = Signoff(
        agents=_agents(model),
        database=database,
        actor=HeaderActorResolver(),
        durable=durable,
        models=models,
        inbox_role="ADMIN",
    )
    api = FastAPI(title="signoff demo", lifespan=app.lifespan)
    api.include_router(app.router(), prefix="/agent")
    api.mount("/", Page(directory=PAGE, html=True))
    return api
