"""Web servers and workers of one application, as processes that a test kills and replaces."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random  # noqa: TID251  # chaos wants seeds, not our ids
from typing import Self

START_S = 60.0
ROOT = Path(__file__).parents[2]


class Member:
    """A process of the fleet. `ready` is what it said when it could be used."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, ready: str) -> None:
        self.process = process
        self.log = log
        self.ready = ready

    async def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


class Fleet:
    """`webs` are addresses of web servers; `workers` drive runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.webs: list[Member] = []
        self.workers: list[Member] = []
        self._environment = environment
        self._started = 0

    @asynccontextmanager
    async def running(self, *, webs: int, workers: int) -> AsyncIterator[Self]:
        """With so many of each, all ready."""
        try:
            await self.add(webs=webs, workers=workers)
            yield self
        finally:
            await self.kill_all()

    async def add(self, *, webs: int = 0, workers: int = 0) -> None:
        """Start more, and wait until they are ready."""
        await asyncio.gather(*(self._add_web() for _ in range(webs)), *(self.add_worker() for _ in range(workers)))

    async def add_worker(self) -> None:
        """Start one more worker, and wait until it is ready."""
        command = ("-m", "signoff", "worker", "tests.processes.chaos_app:app")
        self.workers.append(await self._start(command, "signoff worker:"))

    async def kill_all(self) -> None:
        """SIGKILL for everybody."""
        members, self.webs, self.workers = [*self.webs, *self.workers], [], []
        await asyncio.gather(*(member.kill() for member in members))

    def addresses(self) -> Sequence[str]:
        """Where the web servers listen."""
        return [member.ready.removeprefix("ready: ") for member in self.webs]

    def logs(self) -> str:
        """The ends of everybody's logs, for a failure's message."""
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    async def _add_web(self) -> None:
        self.webs.append(await self._start(("-m", "tests.processes.chaos_app"), "ready: "))

    async def _start(self, command: Sequence[str], says: str) -> Member:
        self._started += 1
        log = self.folder / f"{self._started:03}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *command,
                cwd=ROOT,
                env={**os.environ, **self._environment, "PYTHONUNBUFFERED": "1"},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        assert process.stdout is not None
        line = ""
        try:
            async with asyncio.timeout(START_S):
                line = (await process.stdout.readline()).decode().strip()
            assert line.startswith(says), f"{command} did not start: {line!r}\n{log.read_text()}"
        except BaseException:
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise
        return Member(process, log, line)


class Chaos:
    """Kills a worker a second, and replaces it, until it is told to stop. `kills` counts."""

    def __init__(self, fleet: Fleet, *, seed: int) -> None:
        self.kills = 0
        self._fleet = fleet
        self._random = Random(seed)
        self._replacing: set[asyncio.Task[None]] = set()

    async def run(self, until: asyncio.Event) -> None:
        """Returns when `until` is set and all killed workers are replaced."""
        while not until.is_set():
            try:
                await asyncio.wait_for(until.wait(), 1)
            except TimeoutError:
                await self._strike()
        await asyncio.gather(*self._replacing)

    async def _strike(self) -> None:
        # A worker takes seconds to start: one is left alive, or nothing would ever run.
        if len(self._fleet.workers) < 2:
            return
        victim = self._random.choice(self._fleet.workers)
        self._fleet.workers.remove(victim)
        await victim.kill()
        self.kills += 1
        task = asyncio.create_task(self._fleet.add_worker())
        self._replacing.add(task)
        task.add_done_callback(self._replacing.discard)
