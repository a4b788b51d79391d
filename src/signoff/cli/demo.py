"""`signoff demo`: the page, the API and a desk with something to approve."""

import asyncio
import os
import signal
import socket
import webbrowser
from enum import StrEnum
from typing import Annotated

import typer
import uvicorn
from fastapi import FastAPI

from signoff.errors import ConfigurationError


class Runner(StrEnum):
    """Where a turn lives: in this process only, or in the database as well."""

    INLINE = "inline"
    DURABLE = "durable"


def demo(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8000,
    database: Annotated[str, typer.Option(help="SQLAlchemy URL of the database.")] = "sqlite:///demo.db",
    runner: Annotated[Runner, typer.Option(help="durable: turns survive a restart.")] = Runner.DURABLE,
    model: Annotated[
        str,
        typer.Option(help="scripted, or a provider's model such as openai:gpt-5-mini (needs that extra and a key)."),
    ] = "scripted",
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve the demo until interrupted."""
    # Imported here: `signoff --help` should not wait for the whole library.
    from signoff.demo.app import build

    api = build(database=database, durable=runner is Runner.DURABLE, model=model)
    with _listen(host, port) as listener:
        url = f"http://{host}:{listener.getsockname()[1]}"
        asyncio.run(_serve(api, listener, url=url, open_=open_))


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=2048)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise ConfigurationError(f"cannot listen on {host}:{port}: {why}; try --port") from error


async def _serve(api: FastAPI, listener: socket.socket, *, url: str, open_: bool) -> None:
    """Serve between the application's start and its end, so that what fails at the start is raised here."""
    server = uvicorn.Server(uvicorn.Config(api, lifespan="off", log_level="warning", timeout_graceful_shutdown=1))
    async with api.router.lifespan_context(api):
        print(f"signoff demo: {url}", flush=True)
        if open_:
            webbrowser.open(url)
        # uvicorn stops on a signal and then raises it again, which would end the process before the application.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        await server.serve(sockets=[listener])
