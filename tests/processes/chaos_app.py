"""The application that the chaos tests run, as worker and as web server: what it did is files in a folder.

signoff worker tests.processes.chaos_app:app
python -m tests.processes.chaos_app
"""

import asyncio
import os
import socket
from datetime import timedelta
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from signoff import Agent, HeaderActorResolver, Signoff, ToolContext, tool
from signoff.adapters.sinks.redis import RedisSink
from signoff.adapters.system import SystemIds
from signoff.ports.engine import EngineLimits
from signoff.ports.model import Prompt
from signoff.testing.scripted import Answer, ScriptedModel, ask_for, asked, say, step, turn

DATABASE = "SIGNOFF_TEST_CHAOS_DATABASE"
REDIS = "SIGNOFF_TEST_CHAOS_REDIS"
LEDGER = "SIGNOFF_TEST_CHAOS_LEDGER"
WORKERS = "SIGNOFF_TEST_CHAOS_WORKERS"

LAST_WORDS = "It is done, and here are a few words about it."

#: A run may lose its worker often here.
LIMITS = EngineLimits(lease=timedelta(seconds=3), sweep=timedelta(seconds=1), crashes_max=100)


class Ledger:
    """The outside world: a file for each effect, whose content is the order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pay(self, order: str, key: str) -> None:
        """As a payment provider that honours keys: the second time nothing happens."""
        try:
            self._write(f"pay-{key.replace(':', '-')}", order)
        except FileExistsError:
            pass

    def transfer(self, order: str) -> None:
        """As a bank that does what it is told, each time."""
        self._write(SystemIds().new("transfer"), order)

    def effects(self) -> list[str]:
        """The order of each effect that happened."""
        return [path.read_text() for path in self.folder.iterdir() if path.suffix != ".new"]

    def _write(self, name: str, order: str) -> None:
        # A kill may come at any moment: the effect is there with its content, or it is not.
        written = self.folder / f"{SystemIds().new('draft')}.new"
        written.write_text(order)
        os.link(written, self.folder / name)
        written.unlink()


@tool
async def look_up(order: str) -> str:
    """What is known of an order."""
    return f"{order} is paid"


@tool(kind="action", idempotent=True)
async def pay(order: str, ctx: ToolContext) -> str:
    """Pay back under a key."""
    Ledger(Path(os.environ[LEDGER])).pay(order, ctx.idempotency_key)
    return f"{order} paid back"


@tool(kind="action")
async def transfer(order: str) -> str:
    """Transfer, without a key."""
    # As long again before the effect as after it: whoever dies in here has or has not done it.
    await asyncio.sleep(0.25)
    Ledger(Path(os.environ[LEDGER])).transfer(order)
    await asyncio.sleep(0.25)
    return f"{order} transferred"


def script(prompt: Prompt) -> Answer:
    """Look the order up, act on it, sum up."""
    name, _, order = asked(prompt).partition(" ")
    match step(prompt):
        case 0:
            return turn("Let me look at that first. ", ask_for("look_up", {"order": order}))
        case 1:
            return turn("This needs a person. ", ask_for(name, {"order": order}))
        case _:
            return say(LAST_WORDS, delay=timedelta(milliseconds=15))


def desk() -> Signoff:
    """Streams go over Redis if there is one, and runs to workers if there are any; else servers drive them."""
    redis = os.environ.get(REDIS)
    has_workers = WORKERS in os.environ
    return Signoff(
        agents=[Agent("desk", instructions="Help.", tools=[look_up, pay, transfer])],
        model=ScriptedModel.from_function(script),
        database=os.environ[DATABASE],
        actor=HeaderActorResolver(),
        engine="dbos" if has_workers else "embedded",
        serve=not has_workers,
        durable="strict",
        engine_limits=LIMITS,
        sink=RedisSink(redis) if redis else "database",
    )


async def main() -> None:
    """A web server, until it is killed."""
    app = desk()
    api = FastAPI(lifespan=app.lifespan)
    api.include_router(app.router(adonis=False), prefix="/agent")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(api, lifespan="off", log_level="warning"))
        async with app.running():
            print(f"ready: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            await server.serve(sockets=[listener])


def __getattr__(name: str) -> Signoff:
    """`app`, for `signoff worker`; made by each process that asks for it."""
    if name != "app":
        raise AttributeError(name)
    return desk()
