"""A desk that moves money, as a server process: what it did is lines in a file, whatever becomes of the process.

    python -m tests.processes.bank_app FOLDER PORT

A file ``die-after-effect`` or ``die-mid-stream`` in the folder makes the process kill itself there, once.
"""

import asyncio
import os
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from signoff import Agent, HeaderActorResolver, Signoff, ToolContext, tool
from signoff.ports.engine import EngineLimits
from signoff.ports.model import Prompt
from signoff.testing.scripted import Answer, ScriptedModel, ask_for, asked, say, step

FOLDER = Path(sys.argv[1])


def die(mark: str) -> None:
    """Kill this process as the kernel would, if the test asked for it here; only once."""
    path = FOLDER / mark
    if path.exists():
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def write_down(line: str) -> None:
    """An effect in the outside world: once it is on disk it has happened."""
    with (FOLDER / "effects").open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())


@tool
async def balance(account: str) -> int:
    """How much is on an account."""
    write_down(f"read {account}")
    return 100


@tool(kind="action")
async def transfer(account: str, cents: int, ctx: ToolContext) -> str:
    """Send money."""
    write_down(f"transfer {account} {cents} {ctx.idempotency_key}")
    die("die-after-effect")
    return "sent"


@tool(kind="action", idempotent=True)
async def pay(account: str, cents: int, ctx: ToolContext) -> str:
    """Send money under a key."""
    write_down(f"pay {account} {cents} {ctx.idempotency_key}")
    die("die-after-effect")
    return "paid"


def script(prompt: Prompt) -> Answer:
    """Look, act, sum up; "long" streams many words, and dies in the middle if told to."""
    write_down("model")
    match asked(prompt), step(prompt):
        case "long", _:
            asyncio.get_running_loop().call_later(0.3, die, "die-mid-stream")
            return say("one two three four five six seven eight nine ten", delay=timedelta(milliseconds=60))
        case (("transfer" | "pay"), 0):
            return ask_for("balance", {"account": "A"})
        case ("transfer" | "pay") as name, 1:
            return ask_for(name, {"account": "A", "cents": 5})
        case _:
            return say("All done.")


async def main() -> None:
    desk = Agent("desk", instructions="You move money.", tools=[balance, transfer, pay])
    app = Signoff(
        agents=[desk],
        model=ScriptedModel.from_function(script),
        database=f"sqlite:///{FOLDER / 'bank.db'}",
        actor=HeaderActorResolver(),
        durable="strict",
        engine_limits=EngineLimits(lease=timedelta(seconds=2), sweep=timedelta(seconds=1)),
    )
    api = FastAPI(lifespan=app.lifespan)
    api.include_router(app.router(), prefix="/agent")
    with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as listener:
        server = uvicorn.Server(uvicorn.Config(api, lifespan="off", log_level="warning"))
        async with app.running():
            print(f"ready: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
            await server.serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
