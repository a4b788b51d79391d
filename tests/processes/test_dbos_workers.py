"""Worker processes on DBOS and PostgreSQL: work moves between them, and each does what it is told to serve."""

import asyncio
import os
import signal
import sys

import pytest

from signoff import Event, EventName, Signoff
from signoff.adapters.sinks.database import DatabaseSink
from tests.processes.fleet import ROOT, Fleet
from tests.processes.stage_app import DATABASE, FOLDER, PATIENCE_S, TALK, Stage, StageModel, agent
from tests.processes.turns import approve, assert_well, card, parked, send

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]


async def test_a_parked_run_goes_on_in_another_process(stage: Stage, web: Signoff, workers: Fleet) -> None:
    first = await workers.add_worker()
    run_id = await send(web, "pay A-1")
    await parked(web, run_id)
    second = await workers.add_worker()
    await first.kill()
    await approve(web, run_id)

    await assert_well(web, run_id)
    assert stage.effects("pay A-1") == [second.pid]


async def test_each_process_does_what_it_is_there_for(stage: Stage, web: Signoff, workers: Fleet) -> None:
    drives = await workers.add_worker("runs")
    speaks = await workers.add_worker("llm")
    acts = await workers.add_worker("tools")
    run_id = await send(web, "transfer A-1")
    await approve(web, run_id)

    await assert_well(web, run_id)
    assert stage.at("policy-A-1") == [drives.pid]
    assert stage.at("model-A-1-0") == stage.at("model-A-1-1") == [speaks.pid]
    assert stage.effects("transfer A-1") == [acts.pid]


async def test_a_worker_takes_as_much_at_once_as_it_is_told(stage: Stage, web: Signoff, workers: Fleet) -> None:
    for place in ("transfer-A-1", "transfer-A-2", "model-A-3-0", "model-A-4-0"):
        stage.shut(place)
    await workers.add_worker(concurrency=["tools=1", "llm=2"])
    transfers = [await send(web, f"transfer A-{number}") for number in (1, 2)]
    shown = [await card(web, run_id) for run_id in transfers]
    assert len(shown) == 2
    await approve(web, transfers[0])
    await stage.reached("transfer-A-1")
    await approve(web, transfers[1])

    # Two speak while one acts. When both have, the other action has long been in its queue.
    talks = [await send(web, f"talk A-{number}") for number in (3, 4)]
    await stage.reached("model-A-3-0")
    await stage.reached("model-A-4-0")
    stage.open("model-A-3-0")
    stage.open("model-A-4-0")
    for run_id in talks:
        await assert_well(web, run_id, said=TALK)
    assert stage.at("transfer-A-2") == []
    stage.open("transfer-A-1")
    stage.open("transfer-A-2")

    for run_id in transfers:
        await assert_well(web, run_id)


async def test_the_command_serves_until_it_is_told_to_stop(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """`python -m signoff worker`, as a person or a supervisor starts it."""
    await workers.add_worker("runs,llm")
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "signoff", "worker", "tests.processes.stage_app:app"),
        *("--groups", "tools", "--concurrency", "tools=4"),
        cwd=ROOT,
        env={**os.environ, DATABASE: url, FOLDER: str(stage.folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"signoff worker: tools\n"
            run_id = await send(web, "pay A-1")
            await approve(web, run_id)
            await assert_well(web, run_id)
            worker.send_signal(signal.SIGTERM)
            said, errors = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()

    assert (worker.returncode, said) == (0, b"signoff worker: stopping\n"), errors.decode()
    assert stage.effects("pay A-1") == [worker.pid]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--groups", "tool"), "there is no worker group 'tool'; there are runs, llm, tools"),
        (("--concurrency", "tool=4"), "there is no worker group 'tool'; there are runs, llm, tools"),
        (("--concurrency", "tools=none"), "--concurrency 'tools=none': write group=number, e.g. llm=16"),
    ],
)
async def test_a_group_that_does_not_exist_is_named(workers: Fleet, options: tuple[str, str], error: str) -> None:
    target = "tests.processes.stage_app:app"

    assert error in await workers.refused("worker", target, *options)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_sink_that_serves_one_process_of_many_is_told_of_at_the_start(
    url: str, stage: Stage, caplog: pytest.LogCaptureFixture, is_shared: bool
) -> None:
    told: list[Event] = []
    web = Signoff(
        agents=[agent(stage, "Help.")],
        model=StageModel(stage),
        database=url,
        engine="dbos",
        serve=False,
        durable="strict",
        sink=DatabaseSink(shared=is_shared),
        subscribers=[told.append],
    )
    async with web.running():
        warned = EventName.SINK_IN_PROCESS in [event.name for event in told]

    assert warned is not is_shared
    assert ("SERVES ONLY ONE" in caplog.text) is not is_shared
