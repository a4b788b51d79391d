"""Worker processes on DBOS and PostgreSQL: work moves between them, and survives them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from signoff import Actor, Signoff
from signoff.adapters.system import SystemClock
from signoff.cli.desk import operator
from signoff.domain.frame import NumberedFrame
from signoff.service.decide import DecisionRequest, Verb
from signoff.service.send import SendRequest
from signoff.service.stream import Attached
from tests.conformance.engine.dbos_world import database
from tests.processes.dbos_desk import DATABASE, LEDGER, desk

pytestmark = pytest.mark.postgres

#: Real time after which a test gives up that waits for a frame or a line. Nothing waits this long when it is right.
PATIENCE_S = 60.0

ANA = Actor(id="ana")


@pytest.fixture
def url() -> Iterator[str]:
    with database() as url:
        yield url


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """What the tools really did: a line each."""
    path = tmp_path / "ledger"
    path.touch()
    return path


@pytest.fixture
async def web(url: str) -> AsyncIterator[Signoff]:
    """A web process: this one. It drives nothing."""
    async with desk(url).running() as app:
        yield app


class WorkerProcess:
    """`signoff worker`, started and ready."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @classmethod
    @asynccontextmanager
    async def started(cls, url: str, ledger: Path, *options: str) -> AsyncIterator["WorkerProcess"]:
        log = ledger.with_name(f"worker-{os.urandom(4).hex()}.log")
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "signoff", "worker", "tests.processes.dbos_desk:app"),
                *options,
                env={**os.environ, DATABASE: url, LEDGER: str(ledger)},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        worker = cls(process, log)
        try:
            await worker.says("signoff worker:")
            yield worker
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def says(self, text: str) -> None:
        assert self.process.stdout is not None
        line = (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S)).decode()
        assert text in line, f"{line!r}\n{self.log.read_text()}"

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


async def until(attached: Attached, *kinds: str) -> NumberedFrame:
    """Read the stream up to a frame of one of these kinds."""
    async with asyncio.timeout(PATIENCE_S):
        async for numbered in attached.frames:
            if numbered.frame["kind"] in kinds:
                return numbered
            assert numbered.frame["kind"] != "error", numbered.frame
    raise AssertionError(f"the stream ended without any of {kinds}")


async def ask_for_refund(web: Signoff, message: str = "refund A-1001") -> tuple[str, str]:
    """A turn that waits for a person; its run and the card's call."""
    started = await web.send(ANA, SendRequest(message=message))
    card = await until(await web.attach(ANA, started.run_id), "approval-requested")
    return started.run_id, str(card.frame["id"])


async def approve(web: Signoff, run_id: str, call_id: str) -> None:
    await web.decide(ANA, DecisionRequest(call_id=call_id, verb=Verb.APPROVE))
    await until(await web.attach(ANA, run_id, even_ended=True), "done")


def paid(ledger: Path) -> Sequence[tuple[str, int]]:
    """Order and process of each refund."""
    return [(line.split()[0], int(line.split()[3])) for line in ledger.read_text().splitlines()]


async def test_a_parked_run_goes_on_in_another_process(url: str, ledger: Path, web: Signoff) -> None:
    async with WorkerProcess.started(url, ledger) as first:
        run_id, call_id = await ask_for_refund(web)
        async with WorkerProcess.started(url, ledger) as second:
            await first.kill()
            await approve(web, run_id, call_id)

            assert paid(ledger) == [("A-1001", second.process.pid)]


async def test_each_process_does_what_it_is_there_for(url: str, ledger: Path, web: Signoff) -> None:
    async with (
        WorkerProcess.started(url, ledger, "--groups", "runs"),
        WorkerProcess.started(url, ledger, "--groups", "llm", "--concurrency", "llm=2"),
        WorkerProcess.started(url, ledger, "--groups", "tools") as tools,
    ):
        await approve(web, *await ask_for_refund(web))

        assert paid(ledger) == [("A-1001", tools.process.pid)]


async def test_a_worker_that_is_asked_to_stop_leaves_its_runs_to_others(url: str, ledger: Path, web: Signoff) -> None:
    async with WorkerProcess.started(url, ledger) as first:
        run_id, call_id = await ask_for_refund(web)
        assert await first.stop() == 0, first.log.read_text()
        async with WorkerProcess.started(url, ledger) as second:
            await approve(web, run_id, call_id)

            assert paid(ledger) == [("A-1001", second.process.pid)]


async def test_a_tool_whose_worker_dies_is_in_doubt_and_a_person_is_asked(url: str, ledger: Path, web: Signoff) -> None:
    """Another worker notices, and does not do it again by itself."""
    async with (
        WorkerProcess.started(url, ledger, "--groups", "runs,llm"),
        WorkerProcess.started(url, ledger, "--groups", "tools") as dying,
        WorkerProcess.started(url, ledger, "--groups", "tools"),
    ):
        run_id, call_id = await ask_for_refund(web, "transfer 5")
        stream = await web.attach(ANA, run_id)
        await web.decide(ANA, DecisionRequest(call_id=call_id, verb=Verb.APPROVE))
        pid = await executing(ledger)
        os.kill(pid, signal.SIGKILL)
        await until(stream, "approval-settled")
        card = await until(stream, "approval-requested")

        assert card.frame["inDoubt"]
        assert paid(ledger) == [("transfer", pid)]
        assert dying.process.pid == pid or dying.process.returncode is None


async def executing(ledger: Path) -> int:
    """Wait for the tool's first line; the process that wrote it."""
    async with asyncio.timeout(PATIENCE_S):
        while not paid(ledger):  # noqa: ASYNC110  # another process' file can only be polled
            await asyncio.sleep(0.02)
    return paid(ledger)[0][1]


async def test_pruning_from_the_command_line_leaves_nothing_with_dbos(url: str, ledger: Path, web: Signoff) -> None:
    async with WorkerProcess.started(url, ledger):
        await approve(web, *await ask_for_refund(web))
        waiting, _ = await ask_for_refund(web)

        async with operator(url) as desk:
            assert await desk.prune(before=SystemClock().now() + timedelta(days=1)) == 1

    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT workflow_uuid FROM dbos.workflow_status").fetchall()
    assert left
    assert [name for (name,) in left if waiting not in name] == []
