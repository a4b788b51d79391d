"""What every contender is measured with. Standard library only: it runs in the contenders' own environments.

The unit is the **approval turn**: user message -> model call -> read tool -> model call -> action tool -> the run
parks -> a person approves -> the action runs -> model call -> end. Three model calls (in process, 20 text deltas
each), two tool calls, one park and resume; one process, no HTTP. A run counts as parked once the database says so
and nothing of it is left to do but wait.

Modes (``python contender.py MODE --database PATH``), each prints one JSON object:

- ``turns``    `--count` approval turns, `--in-flight` at a time, after 3 to warm up. Turns per wall second; CPU of
               the process per turn; commits per turn, where the contender can count them.
- ``records``  `--count` trivial steps one after the other in one workflow, each durable before the next begins (median
               of 3 times); and `--in-flight` such workflows side by side. Steps per wall second.
- ``latency``  one run at a time, 50 ms after it parked: from the call that approves to the first line of the
               action. p50 and p95 of `--count`.
- ``park``     `--count` parked runs, after 10 turns to warm up: growth of resident memory and of the database a run,
               CPU of the process in 10 idle seconds that begin 3 seconds after the last run parked. What the kernel
               calls resident includes memory that the allocator keeps after the burst of starting them.
- ``idle``     on a database with parked runs: CPU of the process in 10 idle seconds that begin 3 seconds after it was
               ready, and its resident memory.
- ``restart``  on a database with parked runs: from the start of the process (`BENCHMARK_STARTED`, seconds since 1970)
               to the contender being ready, to the first line of the action of one approved run, and to its end.
"""

import argparse
import asyncio
import gc
import json
import os
import sqlite3
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

DELTAS = tuple(f"word{number} " for number in range(20))
PARKED_KEY = "park-0"


class Contender(Protocol):
    """A library under measurement. Keys name runs; they are ours."""

    acted: dict[str, float]
    """When (`time.perf_counter`) the action of a run began, by key."""

    async def open(self) -> None:
        """Be ready to work."""

    async def start(self, key: str) -> None:
        """Start a turn; returns once it is parked."""

    async def approve(self, key: str) -> None:
        """Approve its action, in whatever process it was parked; returns once the turn has ended."""

    async def records(self, name: str, count: int) -> None:
        """One workflow of `count` trivial steps."""

    def commits(self) -> int | None:
        """How many transactions were committed so far; None: it cannot be seen."""


def read(key: str) -> dict[str, object]:
    """The read tool."""
    return {"key": key, "value": 42}


def main(make: Callable[[Path], Contender]) -> None:
    """The command line of a contender."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("mode", choices=list(MODES))
    arguments.add_argument("--database", type=Path, required=True)
    arguments.add_argument("--count", type=int, default=100)
    arguments.add_argument("--in-flight", type=int, default=1)
    arguments.add_argument("--idle", type=float, default=10, help="how many seconds to watch an idle process")
    given = arguments.parse_args()
    result = asyncio.run(_measure(make(given.database), given))
    print(json.dumps(result), flush=True)
    # The contender is not closed: what is parked must survive a process that just ends.
    os._exit(0)


async def _measure(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    await contender.open()
    # As servers do once they have started: what lives for ever is not looked at again by the garbage collector.
    gc.collect()
    gc.freeze()
    return await MODES[given.mode](contender, given)


async def _turns(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    await _play(contender, "warm", 3, 1)
    commits = contender.commits()
    started, cpu = time.perf_counter(), time.process_time()
    await _play(contender, "turn", given.count, given.in_flight)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    committed = contender.commits()
    return {
        "turns_per_s": given.count / wall,
        "cpu_ms_per_turn": cpu / given.count * 1e3,
        "commits_per_turn": None if commits is None or committed is None else (committed - commits) / given.count,
    }


async def _records(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    await contender.records("warm", 50)
    alone = [await _rate(contender, [f"alone-{number}"], given.count) for number in range(3)]
    together = await _rate(contender, [f"together-{number}" for number in range(given.in_flight)], given.count // 5)
    return {"records_per_s": statistics.median(alone), "records_per_s_together": together}


async def _rate(contender: Contender, names: list[str], count: int) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(contender.records(name, count) for name in names))
    return len(names) * count / (time.perf_counter() - started)


async def _latency(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    await _play(contender, "warm", 3, 1)
    seen = []
    for number in range(given.count):
        key = f"late-{number}"
        await contender.start(key)
        await asyncio.sleep(0.05)
        approved = time.perf_counter()
        await contender.approve(key)
        seen.append((contender.acted[key] - approved) * 1e3)
    cuts = statistics.quantiles(seen, n=20, method="inclusive")
    return {"p50_ms": cuts[9], "p95_ms": cuts[18]}


async def _park(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    await _play(contender, "warm", 10, 4)
    rss, size = await _settled(1, given.database)
    limit = asyncio.Semaphore(64)

    async def start(number: int) -> None:
        async with limit:
            await contender.start(f"park-{number}")

    await asyncio.gather(*(start(number) for number in range(given.count)))
    rss_parked, size_parked = await _settled(3, given.database)
    return {
        "idle_cpu_s": await _idle(given.idle),
        "rss_kb_per_run": (rss_parked - rss) / given.count,
        "bytes_per_run": (size_parked - size) / given.count,
    }


async def _idle(seconds: float) -> float:
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - cpu


async def _idles(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    del contender
    await asyncio.sleep(3)
    return {"idle_cpu_s": await _idle(given.idle), "rss_mb": _rss_kb() / 1024}


async def _settled(seconds: float, database: Path) -> tuple[float, int]:
    gc.collect()
    await asyncio.sleep(seconds)
    return _rss_kb(), database_bytes(database)


async def _restart(contender: Contender, given: argparse.Namespace) -> dict[str, float | None]:
    del given
    spawned = float(os.environ["BENCHMARK_STARTED"])
    ready, ready_at = time.time() - spawned, time.perf_counter()
    await contender.approve(PARKED_KEY)
    ended = time.time() - spawned
    return {
        "ready_s": ready,
        "acted_s": ready + contender.acted[PARKED_KEY] - ready_at,
        "ended_s": ended,
        "cpu_s": time.process_time(),
        "rss_mb": _rss_kb() / 1024,
    }


async def _play(contender: Contender, name: str, count: int, in_flight: int) -> None:
    limit = asyncio.Semaphore(in_flight)

    async def turn(key: str) -> None:
        async with limit:
            await contender.start(key)
            await contender.approve(key)

    await asyncio.gather(*(turn(f"{name}-{os.getpid()}-{number}") for number in range(count)))


def _rss_kb() -> float:
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmRSS:")[1].split()[0])


def database_bytes(database: Path) -> int:
    """The size of a SQLite database after its log was folded in."""
    connection = sqlite3.connect(database, timeout=30)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return sum(path.stat().st_size for path in (database, database.with_name(database.name + "-wal")) if path.exists())


MODES = {
    "turns": _turns,
    "records": _records,
    "latency": _latency,
    "park": _park,
    "idle": _idles,
    "restart": _restart,
}
