"""Forks processes of an application, which it has imported: a killed one is replaced in no time.

    python -m tests.processes.nursery <module>

Each line on stdin is JSON and starts one: ``{"kind": "worker" | "web" | "command", "says": <fifo>, "log": <file>,
"environment": {…}, "options": {…}, "arguments": […]}``, with the options of `signoff worker` or the arguments of
`signoff`. It says its process id and then what it has to say into the fifo, which ends when the process does; the last
line of one that ends by itself is its exit code.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import threading
from types import ModuleType
from typing import Any

from signoff.adapters.engine import dbos as dbos  # what a worker imports when it is made
from signoff.cli import main as command
from signoff.cli.worker import worker


def born(module: ModuleType, order: dict[str, Any]) -> None:
    """What the new process does. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(order["says"], os.O_WRONLY), 1)
    os.dup2(os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    os.environ.update(order["environment"])
    try:
        print(os.getpid(), flush=True)
        match order["kind"]:
            case "web":
                asyncio.run(module.main())
            case "worker":
                worker(f"{module.__name__}:app", **order["options"])
            case "command":
                sys.argv = ["signoff", *order["arguments"]]
                command()
        print("0", flush=True)
        os._exit(0)
    except SystemExit as ended:
        sys.stderr.flush()
        print(int(str(ended.code or 0)), flush=True)
        os._exit(0)
    except BaseException:  # noqa: BLE001  # it must not go on as a second nursery
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    module = importlib.import_module(sys.argv[1])
    assert threading.active_count() == 1, "a thread would be lost in the fork"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        if os.fork() == 0:
            born(module, json.loads(line))
    # The test is over, however it ended: none may go on without it.
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
