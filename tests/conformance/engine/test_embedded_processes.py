"""The embedded engine under SIGKILL: real processes, real clock, one SQLite file."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from signoff.adapters.stores.sql import SqlStore
from tests.conformance.engine.world import sqlite_url

PATIENCE_S = 120


class Process:
    """The process, and the lines it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str, effects: Path, runs: int) -> "Process":
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.conformance.engine.embedded_process",
                url,
                str(effects),
                str(runs),
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def kill_after(self, lines: int) -> bool:
        """SIGKILL after so many effects; False if the process had ended before."""
        assert self._process.stdout is not None
        for _ in range(lines):
            line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S)
            if line in (b"", b"all done\n"):
                await self._process.wait()
                return False
        self._process.kill()
        await self._process.wait()
        return True

    async def end(self) -> None:
        """Wait until it has done everything."""
        output, _ = await asyncio.wait_for(self._process.communicate(), PATIENCE_S)
        assert self._process.returncode == 0
        assert output.endswith(b"all done\n")


async def notes(url: str) -> list[str]:
    store = SqlStore(url)
    await store.open()
    try:
        return [str(row.data["text"]) for row in await store.read(lambda tx: tx.audit(tenant="notes"))]
    finally:
        await store.close()


async def judge(url: str, effects: Path, runs: int) -> None:
    """Every record once, every action at most once, and each that did not happen was reported in doubt."""
    written = Counter(await notes(url))
    happened = Counter((await asyncio.to_thread(effects.read_text)).splitlines())
    for n in range(runs):
        run = f"run{n:02}"
        assert [written[f"{run} {step}"] for step in ("begin", "middle", "end")] == [1, 1, 1]
        assert happened[f"{run} read"] >= 1
        assert happened[f"{run} refund"] <= 1
        assert happened[f"{run} refund"] == 1 or written[f"{run} doubt"] == 1


@pytest.mark.parametrize("lines", [1, 2])
async def test_completed_step_never_reruns_after_kill9(tmp_path: Path, lines: int) -> None:
    """One run, killed right after its read and right after its action."""
    url, effects = sqlite_url(tmp_path), tmp_path / "effects"
    process = await Process.start(url, effects, 1)
    await process.kill_after(lines)
    await (await Process.start(url, effects, 1)).end()

    await judge(url, effects, 1)


async def test_chaos_kill9_60_runs(tmp_path: Path) -> None:
    """60 runs side by side, killed again and again while they act."""
    url, effects = sqlite_url(tmp_path), tmp_path / "effects"
    killed = 0
    for lines in (7, 19, 3, 31):
        killed += await (await Process.start(url, effects, 60)).kill_after(lines)
    await (await Process.start(url, effects, 60)).end()

    assert killed == 4
    await judge(url, effects, 60)
