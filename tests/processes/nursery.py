"""Forks processes of the chaos application, which it has imported: a killed one is replaced in no time.

    python -m tests.processes.nursery

Each line on stdin, ``worker <fifo> <log>`` or ``web <fifo> <log>``, starts one. It says its process id and then
what it has to say into the fifo, which ends when the process does.
"""

import asyncio
import os
import signal
import sys
import threading

from signoff.adapters.engine import dbos as dbos  # what a worker imports when it is made
from signoff.cli.worker import worker
from tests.processes import chaos_app


def born(kind: str, fifo: str, log: str) -> None:
    """What the new process does. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(fifo, os.O_WRONLY), 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 2)
    try:
        print(os.getpid(), flush=True)
        if kind == "web":
            asyncio.run(chaos_app.main())
        else:
            chaos_app.app = chaos_app.desk()
            worker("tests.processes.chaos_app:app")
        os._exit(0)
    except BaseException:  # noqa: BLE001  # it must not go on as a second nursery
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


def main() -> None:
    assert threading.active_count() == 1, "a thread would be lost in the fork"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, fifo, log = line.split()
        if os.fork() == 0:
            born(kind, fifo, log)


if __name__ == "__main__":
    main()
