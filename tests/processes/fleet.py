"""Web servers and workers of one application, as processes that a test kills and replaces."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random  # noqa: TID251  # chaos wants seeds, not our ids
from typing import Self

START_S = 60.0
ROOT = Path(__file__).parents[2]


class GaveUp(Exception):
    """A process ended before it was ready."""


class Member:
    """A process of the fleet. `ready` is what it said when it could be used."""

    def __init__(self, pid: int, says: asyncio.StreamReader, ready: str) -> None:
        self.pid = pid
        self.ready = ready
        self._says = says

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if not self._says.at_eof():
            os.kill(self.pid, signal.SIGKILL)
            await self._says.read()


class Fleet:
    """`webs` serve HTTP, `workers` drive runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.webs: list[Member] = []
        self.workers: list[Member] = []
        self._environment = environment
        self._started = 0
        self._nursery: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def running(self, *, webs: int, workers: int) -> AsyncIterator[Self]:
        """With so many of each, all ready."""
        self._nursery = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.processes.nursery"),
            cwd=ROOT,
            env={**os.environ, **self._environment, "PYTHONUNBUFFERED": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert self._nursery.stdout is not None
            assert await self._nursery.stdout.readline() == b"ready\n"
            await self.add(webs=webs, workers=workers)
            yield self
        finally:
            await self.kill_all()
            self._nursery.kill()
            await self._nursery.wait()

    async def add(self, *, webs: int = 0, workers: int = 0) -> None:
        """Start more, and wait until they are ready."""
        async with asyncio.TaskGroup() as group:
            for _ in range(webs):
                group.create_task(self.add_web())
            for _ in range(workers):
                group.create_task(self.add_worker())

    async def add_worker(self) -> None:
        """Start one more worker, and wait until it is ready. As a supervisor does, try again if it gives up:
        it may not reach its database."""
        async with asyncio.timeout(START_S):
            while True:
                try:
                    self.workers.append(await self._start("worker", "signoff worker: "))
                except GaveUp:
                    continue
                return

    async def kill_all(self) -> None:
        """SIGKILL for everybody."""
        members = [*self.webs, *self.workers]
        self.webs.clear()
        self.workers.clear()
        await asyncio.gather(*(member.kill() for member in members))

    def addresses(self) -> Sequence[str]:
        """Where the web servers listen."""
        return [member.ready.removeprefix("ready: ") for member in self.webs]

    async def add_web(self) -> None:
        """Start one more web server, and wait until it is ready."""
        self.webs.append(await self._start("web", "ready: "))

    async def _start(self, kind: str, says: str) -> Member:
        self._started += 1
        fifo, log = (self.folder / f"{self._started:03}.{suffix}" for suffix in ("fifo", "log"))
        os.mkfifo(fifo)
        # Not blocking: otherwise opening it waits for the other end.
        end = os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(f"{kind} {fifo} {log}\n".encode())
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
        async with asyncio.timeout(START_S):
            pid = (await reader.readline()).decode().strip()
            line = (await reader.readline()).decode().strip()
        if not line:
            raise GaveUp(f"{kind} did not start\n{log.read_text()}")
        assert line.startswith(says), line
        return Member(int(pid), reader, line)


class Chaos:
    """Kills one of `victims` each second, and replaces it, until it is told to stop. `kills` counts."""

    def __init__(self, victims: list[Member], replace: Callable[[], Awaitable[None]], *, seed: int) -> None:
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
