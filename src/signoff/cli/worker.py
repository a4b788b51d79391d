"""`signoff worker`: drive an application's runs, or do their model calls and tools, in a process of its own."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from signoff.cli.target import load
from signoff.errors import ConfigurationError, EngineUnavailable

if TYPE_CHECKING:
    from signoff.app import Signoff

_GROUPS = "runs,llm,tools"


def worker(
    target: Annotated[str, typer.Argument(help="The application, as module:attribute, e.g. desk:app.")],
    groups: Annotated[str, typer.Option(help="Worker groups to serve, separated by commas.")] = _GROUPS,
    concurrency: Annotated[
        list[str] | None,
        typer.Option(help="group=number: how many tasks each worker of the group takes at once. May be repeated."),
    ] = None,
) -> None:
    """Serve worker groups until interrupted (engine="dbos").

    On SIGTERM or Ctrl+C nothing new is taken, what runs reaches a safe point, and other workers go on from there.
    """
    app = load(target)
    app.assign(_names(groups), concurrency=dict(map(_setting, concurrency or ())))
    asyncio.run(_work(app, groups))


def _names(groups: str) -> list[str]:
    names = [name.strip() for name in groups.split(",") if name.strip()]
    if not names:
        raise ConfigurationError(f"--groups names none; the default is {_GROUPS}")
    return names


def _setting(text: str) -> tuple[str, int]:
    group, _, number = text.partition("=")
    if not group or not number.isdecimal() or int(number) < 1:
        raise ConfigurationError(f"--concurrency {text!r}: write group=number, e.g. llm=16")
    return group, int(number)


async def _work(app: "Signoff", groups: str) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not on Windows, where an interrupt ends the process and others take over.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopped.set)
    async with app.running():
        if not app.runner.durable:
            raise EngineUnavailable("the durable engine did not start (see the log); a worker has nothing to do")
        print(f"signoff worker: {groups}", flush=True)
        await stopped.wait()
        print("signoff worker: stopping", flush=True)
