"""Web servers and workers of one application, as processes that a test kills, pauses and replaces."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random  # noqa: TID251  # chaos wants seeds, not our ids
from typing import Self

#: Real time after which a process is not waited for any more. Nothing takes this long when it is right.
START_S = 60.0
STOP_S = 60.0
ROOT = Path(__file__).parents[2]

_LOG_LINES = 40
_LOOK_S = 0.05


class Nursery:
    """The process that forks the others; see `nursery`. `module` is their application."""

    def __init__(self, process: "subprocess.Popen[bytes]", module: str) -> None:
        self.module = module
        self._process = process

    @classmethod
    @contextmanager
    def of(cls, module: str) -> Iterator[Self]:
        """Started, and ready."""
        with subprocess.Popen(
            [sys.executable, "-m", "tests.processes.nursery", module],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        ) as process:
            watchdog = threading.Timer(START_S, process.kill)
            watchdog.start()
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n", "the nursery did not start"
                watchdog.cancel()
                yield cls(process, module)
            finally:
                watchdog.cancel()
                os.killpg(process.pid, signal.SIGKILL)

    def bear(self, order: Mapping[str, object]) -> None:
        """Start a process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(order)}\n".encode())
        self._process.stdin.flush()


class GaveUp(Exception):
    """A process ended before it was ready."""


class Member:
    """A process of the fleet. `ready` is what it said when it could be used."""

    def __init__(self, pid: int, says: asyncio.StreamReader, log: Path, ready: str) -> None:
        self.pid = pid
        self.log = log
        self.ready = ready
        self._says = says

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if not self._says.at_eof():
            os.kill(self.pid, signal.SIGKILL)
            await self._says.read()

    def pause(self) -> None:
        """SIGSTOP: it executes nothing, and knows nothing of it."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """SIGTERM, and wait until it has ended well."""
        await self.stopping()
        await self.stopped()

    async def stopping(self) -> None:
        """SIGTERM, and wait until it says that it stops."""
        os.kill(self.pid, signal.SIGTERM)
        async with asyncio.timeout(STOP_S):
            line = (await self._says.readline()).decode().strip()
        assert line == "signoff worker: stopping", line

    async def stopped(self) -> None:
        """Wait until it has ended well."""
        async with asyncio.timeout(STOP_S):
            last = (await self._says.read()).decode().strip()
        assert last == "0", f"{last!r}: it did not end well\n{self.log.read_text()}"

    async def logged(self, text: str) -> None:
        """Wait until its log says so."""
        async with asyncio.timeout(START_S):
            while text not in self.log.read_text():  # noqa: ASYNC110  # another process' file can only be polled
                await asyncio.sleep(_LOOK_S)


class Fleet:
    """`webs` serve HTTP, `workers` drive runs. Their logs are in `folder`."""

    def __init__(self, nursery: Nursery, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.webs: list[Member] = []
        self.workers: list[Member] = []
        self._nursery = nursery
        self._environment = environment
        self._started = 0

    @asynccontextmanager
    async def running(self, *, webs: int = 0, workers: int = 0) -> AsyncIterator[Self]:
        """With so many of each, all ready. Prints at the end what they logged."""
        try:
            await self.add(webs=webs, workers=workers)
            yield self
        finally:
            await self.kill_all()
            self._print_logs()

    async def add(self, *, webs: int = 0, workers: int = 0) -> None:
        """Start more, and wait until they are ready."""
        async with asyncio.TaskGroup() as group:
            for _ in range(webs):
                group.create_task(self.add_web())
            for _ in range(workers):
                group.create_task(self.add_worker())

    async def add_worker(
        self,
        groups: str = "runs,llm,tools",
        *,
        concurrency: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Member:
        """Start one more worker, and wait until it is ready. As a supervisor does, try again if it gives up:
        it may not reach its database."""
        options = {"groups": groups, "concurrency": [*concurrency]}
        async with asyncio.timeout(START_S):
            while True:
                try:
                    worker = await self._start("worker", "signoff worker: ", environment or {}, options)
                except GaveUp:
                    continue
                self.workers.append(worker)
                return worker

    async def command(self, *arguments: str) -> str:
        """`signoff …`, to its end; what it printed."""
        printed, code, errors = await self._command(*arguments)
        assert code == 0, f"{arguments}: {code}\n{printed}\n{errors}"
        return printed

    async def refused(self, *arguments: str) -> str:
        """`signoff …`, which ends with exit code 1; what it said of that."""
        printed, code, errors = await self._command(*arguments)
        assert code == 1, f"{arguments}: {code}\n{printed}\n{errors}"
        return errors

    async def _command(self, *arguments: str) -> tuple[str, int, str]:
        _, says, log = await self._bear("command", {}, {"arguments": arguments})
        async with asyncio.timeout(STOP_S):
            printed, _, code = (await says.read()).decode().rstrip().rpartition("\n")
        return printed, int(code), log.read_text()

    async def kill_all(self) -> None:
        """SIGKILL for everybody."""
        members = [*self.webs, *self.workers]
        self.webs.clear()
        self.workers.clear()
        await asyncio.gather(*(member.kill() for member in members))

    def addresses(self) -> Sequence[str]:
        """Where the web servers listen."""
        return [member.ready.removeprefix("ready: ") for member in self.webs]

    async def add_web(self) -> Member:
        """Start one more web server, and wait until it is ready."""
        web = await self._start("web", "ready: ", {}, {})
        self.webs.append(web)
        return web

    async def _start(
        self, kind: str, says: str, environment: Mapping[str, str], options: Mapping[str, object]
    ) -> Member:
        pid, reader, log = await self._bear(kind, environment, {"options": options})
        async with asyncio.timeout(START_S):
            line = (await reader.readline()).decode().strip()
        if not line:
            raise GaveUp(f"{kind} did not start\n{log.read_text()}")
        assert line.startswith(says), line
        return Member(pid, reader, log, line)

    async def _bear(
        self, kind: str, environment: Mapping[str, str], more: Mapping[str, object]
    ) -> tuple[int, asyncio.StreamReader, Path]:
        """A new process: its id, what it says, and its log."""
        self._started += 1
        fifo, log = (self.folder / f"{self._started:03}-{kind}.{suffix}" for suffix in ("fifo", "log"))
        os.mkfifo(fifo)
        # Not blocking: otherwise opening it waits for the other end.
        end = os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        everything = {**self._environment, **environment}
        self._nursery.bear({"kind": kind, "says": str(fifo), "log": str(log), "environment": everything, **more})
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
        async with asyncio.timeout(START_S):
            pid = (await reader.readline()).decode().strip()
        return int(pid), reader, log

    def _print_logs(self) -> None:
        """pytest shows it where a test has failed."""
        for log in sorted(self.folder.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            if lines:
                print(f"--- {log.stem}, {len(lines)} lines", *lines[-_LOG_LINES:], sep="\n")


class Chaos:
    """Kills one of `victims` each second, and replaces it, until it is told to stop. `kills` counts."""

    def __init__(self, victims: list[Member], replace: Callable[[], Awaitable[object]], *, seed: int) -> None:
        self.kills = 0
        self._victims = victims
        self._replace = replace
        self._random = Random(seed)

    async def run(self, until: asyncio.Event) -> None:
        """Returns when `until` is set and all that were killed are replaced."""
        async with asyncio.TaskGroup() as group:
            while not until.is_set():
                try:
                    await asyncio.wait_for(until.wait(), 1)
                except TimeoutError:
                    # One is left alive: those that replace the others may take a while, and nothing would ever run.
                    if len(self._victims) > 1:
                        group.create_task(self._strike())

    async def _strike(self) -> None:
        victim = self._victims.pop(self._random.randrange(len(self._victims)))
        await victim.kill()
        self.kills += 1
        await self._replace()
