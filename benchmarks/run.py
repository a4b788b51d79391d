"""All benchmarks beside their peers, in one go: ``python benchmarks/run.py [--rounds 3] [--quick] [--peers DIR]``.

Each figure is the median of the rounds; within a round every contender is measured once, in processes of its own, one
after the other, so that a busy minute of the machine meets all of them. The definitions are in `harness`. The last
column compares: how many times as fast, or as small, as the best peer. The load average is printed with the figures,
since walls of a busy machine say little; CPU, commits, bytes and memory hardly depend on it.

LangGraph and DBOS are installed from PyPI into environments of their own under ``--peers`` (default:
``benchmarks/.peers``) on first use, at the versions in `PEERS`.
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import parked

HERE = Path(__file__).parent
PEERS = {
    "langgraph": ["langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"],
    "dbos": ["dbos==3.4.0"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Who is measured. `environment`: variables for its processes."""

    name: str
    script: str
    python: Path
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the table: one number of one mode, and whether more of it is better."""

    title: str
    mode: str
    key: str
    more_is_better: bool = False


FIGURES = (
    Figure("turns/s, 1 in flight", "turns-1", "turns_per_s", True),
    Figure("turns/s, 64 in flight", "turns-64", "turns_per_s", True),
    Figure("CPU ms a turn, 1 in flight", "turns-1", "cpu_ms_per_turn"),
    Figure("CPU ms a turn, 64 in flight", "turns-64", "cpu_ms_per_turn"),
    Figure("commits a turn, 1 in flight", "turns-1", "commits_per_turn"),
    Figure("commits a turn, 64 in flight", "turns-64", "commits_per_turn"),
    Figure("records/s, one workflow", "records", "records_per_s", True),
    Figure("records/s, 64 workflows", "records", "records_per_s_together", True),
    Figure("approve -> tool, p50 ms", "latency", "p50_ms"),
    Figure("approve -> tool, p95 ms", "latency", "p95_ms"),
    Figure("1,000 parked: RSS KB a run", "park", "rss_kb_per_run"),
    Figure("1,000 parked: CPU s in 10 idle s", "park", "idle_cpu_s"),
    Figure("1,000 parked: bytes a run", "park", "bytes_per_run"),
    Figure("restart with 1,000 parked: ready, s", "restart", "ready_s"),
    Figure("restart with 1,000 parked: first action, s", "restart", "acted_s"),
    Figure("restart with 1,000 parked: first turn ended, s", "restart", "ended_s"),
)

MODES = {
    "turns-1": ["turns", "--count", "60"],
    "turns-64": ["turns", "--count", "192", "--in-flight", "64"],
    "records": ["records", "--count", "300", "--in-flight", "64"],
    "latency": ["latency", "--count", "40"],
    "park": ["park", "--count", "1000"],
    "restart": ["restart"],  # on the database that `park` left
}
QUICK = {"turns-1", "turns-64", "records", "latency"}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="leave out what parks thousands of runs")
    arguments.add_argument("--peers", type=Path, default=HERE / ".peers")
    given = arguments.parse_args()
    contenders = [Contender(name="signoff", script="ours.py", python=Path(sys.executable)), *peers(given.peers)]
    modes = {mode: command for mode, command in MODES.items() if not given.quick or mode in QUICK}
    seen: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    load = [os.getloadavg()[0]]
    for _ in range(given.rounds):
        for contender in contenders:
            with tempfile.TemporaryDirectory() as directory:
                for mode, command in modes.items():
                    name = "park" if mode == "restart" else mode
                    result = measure(contender, command, Path(directory) / f"{name}.db")
                    seen.setdefault((contender.name, mode), []).append(result)
            load.append(os.getloadavg()[0])
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine}, load {min(load):.1f}-{max(load):.1f}")
    print(f"medians of {given.rounds}\n")
    print(table(contenders, seen))
    if not given.quick:
        print("\n100,000 parked runs (benchmarks/parked.py):\n")
        for what, value in parked.main(100_000).items():
            print(f"- {what}: {value:,.3f}")


def peers(directory: Path) -> list[Contender]:
    """LangGraph and DBOS, installed if they are not."""
    for name, packages in PEERS.items():
        home = directory / name
        if not (home / "installed").exists():
            venv.create(home, with_pip=True, clear=True)
            install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages]
            subprocess.run(install, check=True)
            (home / "installed").touch()
    langgraph, dbos = (directory / name / "bin" / "python" for name in ("langgraph", "dbos"))
    return [
        Contender(name="LangGraph", script="peer_langgraph.py", python=langgraph),
        Contender(name="DBOS", script="peer_dbos.py", python=dbos),
        Contender(name="DBOS, 10 ms poll", script="peer_dbos.py", python=dbos, environment={"DBOS_POLL": "0.01"}),
    ]


def measure(contender: Contender, command: list[str], database: Path) -> dict[str, float | None]:
    """One mode of one contender, in a process of its own."""
    print(f"{contender.name}: {' '.join(command)}", file=sys.stderr)
    line = [str(contender.python), str(HERE / contender.script), *command, "--database", str(database)]
    environment = os.environ | contender.environment | {"BENCHMARK_STARTED": str(time.time())}
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, float | None] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(contenders: list[Contender], seen: dict[tuple[str, str], list[dict[str, float | None]]]) -> str:
    """Medians, one line a figure."""
    head = ["", *(contender.name for contender in contenders), "signoff, times the best peer"]
    lines = [head, ["---"] * len(head)]
    for figure in FIGURES:
        medians = [median(seen.get((contender.name, figure.mode), []), figure.key) for contender in contenders]
        ours, others = medians[0], [value for value in medians[1:] if value is not None]
        if ours is None:
            continue
        ratio = "-"
        if others and ours > 0:
            best = max(others) if figure.more_is_better else min(others)
            if best > 0:
                ratio = f"{ours / best if figure.more_is_better else best / ours:.1f} x"
        lines.append([figure.title, *("-" if value is None else shown(value) for value in medians), ratio])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def median(results: list[dict[str, float | None]], key: str) -> float | None:
    """The median of one number; None where nobody could measure it."""
    values = [value for result in results if (value := result.get(key)) is not None]
    return statistics.median(values) if values else None


def shown(value: float) -> str:
    """Three digits or so."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


if __name__ == "__main__":
    main()
