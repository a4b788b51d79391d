"""Workers on PostgreSQL, signoff beside bare DBOS: ``python benchmarks/workers.py [--workers 1 2 3] [--rounds 3]``.

The unit is the approval turn of `harness`, asked for and approved by one process that drives nothing, done by 1, 2 and
3 worker processes on one database of a local PostgreSQL (`SIGNOFF_TEST_POSTGRES`, default 127.0.0.1). Per number of
workers, after a warm-up:

- turns per second with `--in-flight` turns at a time, and CPU of the workers a turn;
- one turn at a time, 50 ms after its card was seen: from the call that approves to the first line of the action, and
  from the call that asks to the card.

signoff: all worker groups in each worker, each model call and tool dispatched through a queue, runs out of memory
while they wait, the stream read by the asking process as a browser's would be. DBOS: a workflow written by hand, each
model and tool call a step in the worker that has the workflow, which waits in memory in `recv`, its queue polled every
200 ms (its default is a second); no stream, no thread, no audit. Both keep everything in PostgreSQL, and are woken by
its notifications.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

import psutil
import psycopg
from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
from psycopg.sql import SQL, Identifier
from sqlalchemy.engine import make_url
from workers_app import ME, desk
from workers_dbos import APPLICATION, QUEUE, VERSION

from signoff import DecisionRequest, SendRequest, Signoff, Verb
from signoff.service.stream import Attached

HERE = Path(__file__).parent
SERVER = os.environ.get("SIGNOFF_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
POLL_S = 0.2


class Contender(Protocol):
    """Who is measured."""

    async def ask(self, key: str) -> None:
        """Ask for a turn; returns once its card can be seen."""

    async def approve(self, key: str) -> float:
        """Approve it; returns when the action began, once the turn has ended."""


class Ours:
    """A web process of signoff's."""

    def __init__(self, app: Signoff) -> None:
        self._app = app
        self._waiting: dict[str, tuple[Attached, str]] = {}

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator["Ours"]:
        """Open on a database."""
        async with desk(url).running() as app:
            yield cls(app)

    @staticmethod
    def worker(url: str, number: int) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a worker."""
        del number
        command = [sys.executable, "-m", "signoff", "worker", "workers_app:app", "--groups", "runs,llm,tools"]
        return command, {"BENCHMARK_DATABASE": url, "PYTHONPATH": str(HERE)}

    async def ask(self, key: str) -> None:
        """See `Contender`."""
        run = await self._app.send(ME, SendRequest(message=f"Do it, key={key}"))
        stream = await self._app.attach(ME, run.run_id)
        async for numbered in stream.frames:
            assert numbered.frame["kind"] != "error", numbered.frame
            if numbered.frame["kind"] == "approval-requested":
                self._waiting[key] = stream, str(numbered.frame["id"])
                return

    async def approve(self, key: str) -> float:
        """See `Contender`."""
        stream, card = self._waiting.pop(key)
        await self._app.decide(ME, DecisionRequest(call_id=card, verb=Verb.APPROVE))
        at = 0.0
        async for numbered in stream.frames:
            assert numbered.frame["kind"] != "error", numbered.frame
            match numbered.frame:
                case {"kind": "tool-output", "output": {"at": float(at)}}:
                    pass
        return at


class Bare:
    """A client of DBOS."""

    def __init__(self, client: DBOSClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def on(cls, url: str) -> AsyncIterator["Bare"]:
        """Open on a database."""
        client = await asyncio.to_thread(cls._connect, url)
        yield cls(client)
        await asyncio.to_thread(client.destroy)

    @staticmethod
    def _connect(url: str) -> DBOSClient:
        DBOS.migrate(url)
        client = DBOSClient(
            system_database_url=url,
            application_name=APPLICATION,
            serializer=DBOSPortableJSONSerializer(),
            use_listen_notify=True,
        )
        client.register_queue(QUEUE, polling_interval_sec=POLL_S, application_name=APPLICATION)
        return client

    @staticmethod
    def worker(url: str, number: int) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a worker."""
        return [sys.executable, str(HERE / "workers_dbos.py"), url, f"worker-{number}"], {}

    async def ask(self, key: str) -> None:
        """See `Contender`."""
        await self._client.enqueue_async(
            {"workflow_name": "turn", "queue_name": QUEUE, "workflow_id": key, "app_version": VERSION}, key
        )
        assert await self._client.get_event_async(key, "card", 60) == key

    async def approve(self, key: str) -> float:
        """See `Contender`."""
        await self._client.send_async(key, True, "approval")
        handle = await self._client.retrieve_workflow_async(key)
        at: float = await handle.get_result(polling_interval_sec=0.01)
        return at


CONTENDERS = {"signoff": Ours, "DBOS": Bare}


@contextmanager
def database() -> Iterator[str]:
    """URL of a database of its own."""
    name = f"benchmark_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield make_url(SERVER).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@asynccontextmanager
async def workers(command: list[list[str]], environment: dict[str, str]) -> AsyncIterator[list[psutil.Process]]:
    """Worker processes, ready; killed at the end."""
    started = []
    try:
        for line in command:
            process = await asyncio.create_subprocess_exec(
                *line, env=os.environ | environment, cwd=HERE, stdout=asyncio.subprocess.PIPE
            )
            started.append(process)
            assert process.stdout is not None
            assert await process.stdout.readline(), f"{line} did not start"
        yield [psutil.Process(process.pid) for process in started]
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def measure(name: str, count: int, given: argparse.Namespace) -> dict[str, float]:
    """One contender with `count` workers."""
    contender_type = CONTENDERS[name]
    with database() as url:
        async with contender_type.on(url) as contender:
            lines = [contender_type.worker(url, number) for number in range(count)]
            async with workers([line for line, _ in lines], lines[0][1]) as processes:
                await play(contender, "warm", 6, 6)
                started, cpu = time.perf_counter(), sum(map(cpu_s, processes))
                await play(contender, "turn", given.turns, given.in_flight)
                wall, cpu = time.perf_counter() - started, sum(map(cpu_s, processes)) - cpu
                seen = [await one(contender, f"late-{number}") for number in range(given.latencies)]
    asked, acted = ([pair[which] * 1e3 for pair in seen] for which in (0, 1))
    return {
        "turns/s": given.turns / wall,
        "CPU ms a turn, workers": cpu / given.turns * 1e3,
        "approve -> tool, p50 ms": statistics.median(acted),
        "approve -> tool, p95 ms": statistics.quantiles(acted, n=20, method="inclusive")[18],
        "ask -> card, p50 ms": statistics.median(asked),
    }


async def play(contender: Contender, name: str, count: int, in_flight: int) -> None:
    """`count` whole turns, `in_flight` at a time."""
    limit = asyncio.Semaphore(in_flight)

    async def turn(key: str) -> None:
        async with limit:
            await contender.ask(key)
            await contender.approve(key)

    await asyncio.gather(*(turn(f"{name}-{number}") for number in range(count)))


async def one(contender: Contender, key: str) -> tuple[float, float]:
    """One turn on its own: how long to the card, and from the approval to the action."""
    asked = time.clock_gettime(time.CLOCK_MONOTONIC)
    await contender.ask(key)
    shown = time.clock_gettime(time.CLOCK_MONOTONIC)
    await asyncio.sleep(0.05)
    approved = time.clock_gettime(time.CLOCK_MONOTONIC)
    return shown - asked, await contender.approve(key) - approved


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--turns", type=int, default=100)
    arguments.add_argument("--in-flight", type=int, default=16)
    arguments.add_argument("--latencies", type=int, default=30)
    arguments.add_argument("--only", choices=list(CONTENDERS))
    given = arguments.parse_args()
    names = [given.only] if given.only else list(CONTENDERS)
    seen: dict[tuple[int, str], list[dict[str, float]]] = {}
    load = [os.getloadavg()[0]]
    for _ in range(given.rounds):
        for count in given.workers:
            for name in names:
                print(f"{name}, {count} workers", file=sys.stderr)
                seen.setdefault((count, name), []).append(asyncio.run(measure(name, count, given)))
                load.append(os.getloadavg()[0])
    print(f"{os.cpu_count()} cores, load {min(load):.1f}-{max(load):.1f}, medians of {given.rounds}\n")
    print(f"| workers | | {' | '.join(names)} | ratio |\n|---|---|{'---|' * len(names)}---|")
    for count in given.workers:
        for key in seen[count, names[0]][0]:
            values = [statistics.median(result[key] for result in seen[count, name]) for name in names]
            ratio = f"{values[0] / values[-1]:.2f}" if len(values) > 1 else "-"
            print(f"| {count} | {key} | {' | '.join(f'{value:.1f}' for value in values)} | {ratio} |")


if __name__ == "__main__":
    main()
