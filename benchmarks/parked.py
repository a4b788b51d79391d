"""100,000 parked runs in one database: what each costs on disk, and what a start pays for them.

``python benchmarks/parked.py [COUNT]``. One run is parked the usual way and its rows are copied, each copy under ids
of its own (of the same length, inside JSON as well); everything else stays as it was, so the hashes of the copied
audit rows do not add up. Then processes are started in turns on this database and on one that holds just the one run;
each resumes one run (`harness`, mode ``restart``, medians of 5). At last one more process idles on the large
database: its CPU in 10 seconds, 3 seconds after it was ready, and its resident memory.
"""

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

ROUNDS = 5
DIGITS = 6
MARK = "\x00"
HERE = Path(__file__).parent
OURS = [sys.executable, str(HERE / "ours.py")]


def main(count: int) -> dict[str, float]:
    """All figures, by name."""
    with tempfile.TemporaryDirectory() as directory:
        small, large = Path(directory) / "small.db", Path(directory) / "large.db"
        run(["park", "--database", str(small), "--count", "1", "--idle", "0"])
        copy(small, large)
        copies = multiply(large, count)
        figures: dict[str, float] = {"bytes_per_run": copies}
        seen: dict[str, list[dict[str, float]]] = {"small": [], "large": []}
        for _ in range(ROUNDS):
            for name, database in (("small", small), ("large", large)):
                # A copy: the run that is resumed is parked again for the next round.
                scratch = database.with_suffix(".scratch")
                copy(database, scratch)
                seen[name].append(run(["restart", "--database", str(scratch)]))
        for name, results in seen.items():
            for what in ("ready_s", "acted_s", "ended_s"):
                figures[f"{name}_{what}"] = statistics.median(result[what] for result in results)
        idle = run(["idle", "--database", str(large)])
        return figures | idle


def run(arguments: list[str]) -> dict[str, float]:
    """What the contender measured."""
    environment = os.environ | {"BENCHMARK_STARTED": str(time.time())}
    done = subprocess.run([*OURS, *arguments], env=environment, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def copy(source: Path, target: Path) -> None:
    """Copy a database that no process has open, and which run is parked in it."""
    harness.database_bytes(source)
    for suffix in ("-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    shutil.copy(source, target)
    shutil.copy(source.with_name(source.name + ".runs"), target.with_name(target.name + ".runs"))


def multiply(database: Path, count: int) -> float:
    """Copy the rows of the one parked run `count` times; returns the bytes a copy takes."""
    before = harness.database_bytes(database)
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA synchronous = OFF")
    run_id, thread_id = connection.execute("SELECT id, thread_id FROM runs WHERE parked").fetchone()
    ids = [run_id, thread_id]
    ids += [row[0] for row in connection.execute("SELECT id FROM calls WHERE run_id = ?", (run_id,))]
    ids += [row[0] for row in connection.execute("SELECT id FROM messages WHERE run_id = ?", (run_id,))]
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        for row in connection.execute(f"SELECT * FROM {table}").fetchall():  # names from the database
            template = [_marked(value, ids) for value in row]
            if template == list(row):
                continue  # not a row of this run
            counted = names.index("seq") if table == "audit" else -1
            places = ", ".join("?" * len(row))
            connection.executemany(
                f"INSERT INTO {table} VALUES ({places})",
                (_copy(template, number, counted) for number in range(1, count + 1)),
            )
    connection.commit()
    connection.close()
    return (harness.database_bytes(database) - before) / count


def _marked(value: object, ids: list[str]) -> object:
    if isinstance(value, str):
        for each in ids:
            value = value.replace(each, each[:-DIGITS] + MARK)
    return value


def _copy(template: list[object], number: int, counted: int) -> list[object]:
    text = f"{number:0{DIGITS}}"
    values = [value.replace(MARK, text) if isinstance(value, str) else value for value in template]
    if counted >= 0:
        values[counted] = int(str(values[counted])) + number * 100
    return values


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000), indent=1))
