"""`signoff runs …` on a database whose runs are on DBOS: in a process that drives nothing, with and without workers."""

import json
from typing import Any

import psycopg
import pytest

from signoff import Signoff
from signoff.domain.call import CallStatus
from signoff.domain.run import RunStatus
from signoff.errors import RunNotActive
from signoff.ports.engine import EngineStatus
from tests.processes.fleet import Fleet
from tests.processes.stage_app import DEPLOY, TALK, Stage, desk
from tests.processes.turns import (
    approve,
    assert_well,
    decide,
    end_well,
    ended,
    engine_run,
    parked,
    rows,
    send,
    until_row,
)

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]


async def runs(workers: Fleet, url: str, verb: str, *arguments: str) -> Any:
    """What `signoff runs <verb>` prints, read as JSON."""
    return json.loads(await workers.command("runs", verb, *arguments, "--json", "--database", url))


async def test_parked_runs_are_counted_by_the_version_of_their_agent(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    old = await workers.add_worker()
    before = [await send(web, f"pay A-{number}") for number in range(2)]
    for run_id in before:
        await parked(web, run_id)
    await old.kill()
    await workers.add_worker(environment={DEPLOY: "kind"})
    async with desk(url, stage, {DEPLOY: "kind"}).running() as replaced:
        after = await send(replaced, "pay A-9")
        await parked(replaced, after)
        await end_well(replaced, await send(replaced, "talk A-10"))

    counted = await runs(workers, url, "list", "--parked", "--by-fingerprint")
    listed = await runs(workers, url, "list", "--parked")

    fingerprints = {run["id"]: run["fingerprint"] for run in listed}
    assert list(fingerprints) == [after, *reversed(before)]
    assert {row["fingerprint"]: row["runs"] for row in counted} == {
        fingerprints[before[0]]: 2,
        fingerprints[after]: 1,
    }
    assert {row["agent"] for row in counted} == {"desk"}


async def test_a_console_executes_nothing(url: str, stage: Stage, web: Signoff, workers: Fleet) -> None:
    """There is a run to drive, and no worker: the console looks at it, cancels another one, and leaves it alone."""
    waiting, unwanted = await send(web, "talk A-1"), await send(web, "talk A-2")

    shown = await runs(workers, url, "show", waiting)
    await runs(workers, url, "list")
    assert await runs(workers, url, "journal", waiting)
    await workers.command("runs", "cancel", unwanted, "--database", url)

    assert shown["status"] == "running"
    assert shown["engine"] == {"status": "pending", "fence": 0, "crashes": 0, "waits": []}
    assert (await engine_run(web, waiting)).status is EngineStatus.PENDING
    queued = rows(url, "SELECT status, executor_id FROM dbos.workflow_status WHERE workflow_uuid = %s", waiting)
    assert queued == [{"status": "ENQUEUED", "executor_id": None}]
    assert (await engine_run(web, unwanted)).status is EngineStatus.CANCELLED
    await workers.add_worker()
    await assert_well(web, waiting, said=TALK)
    assert await stage.reached("model-A-1-0")
    assert stage.at("model-A-2-0") == []


async def test_a_parked_run_is_shown_and_cancelled_without_a_worker(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    worker = await workers.add_worker()
    cancelled, other = await send(web, "pay A-1"), await send(web, "pay A-2")
    shown, _ = await parked(web, cancelled), await parked(web, other)
    await worker.kill()

    view = await runs(workers, url, "show", cancelled)
    await workers.command("runs", "cancel", cancelled, "--database", url)

    assert view["parked"]
    assert view["engine"]["status"] == "suspended"
    assert view["engine"]["waits"] == [f"tool:{cancelled}:{shown['id']}"]
    assert [(call["tool"], call["status"]) for call in view["calls"]] == [("pay", CallStatus.PENDING.value)]
    assert [frame["kind"] for frame in await ended(web, cancelled)][-2:] == ["cancelled", "done"]
    with pytest.raises(RunNotActive):
        await decide(web, shown)
    await workers.add_worker()
    await approve(web, other)
    await assert_well(web, other)
    assert stage.effects("pay A-1") == []
    assert (await runs(workers, url, "show", cancelled))["status"] == RunStatus.CANCELLED.value


async def test_a_busy_run_is_cancelled_at_its_next_safe_point(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """The console's word reaches the worker that executes the tool; what the tool did is kept."""
    stage.shut("transfer-A-1")
    await workers.add_worker()
    run_id = await send(web, "transfer A-1")
    await approve(web, run_id)
    await stage.reached("transfer-A-1")

    await workers.command("runs", "cancel", run_id, "--database", url)
    assert (await engine_run(web, run_id)).status is EngineStatus.CANCELLING
    stage.open("transfer-A-1")

    assert [frame["kind"] for frame in await ended(web, run_id)][-2:] == ["cancelled", "done"]
    assert len(stage.effects("transfer A-1")) == 1
    (call,) = (await runs(workers, url, "show", run_id))["calls"]
    assert call["status"] == CallStatus.COMPLETED.value


async def test_a_failed_run_is_driven_again_by_the_next_worker(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    stage.shut("provider")
    worker = await workers.add_worker()
    run_id = await send(web, "talk A-1")
    assert (await ended(web, run_id))[-1]["kind"] == "error"
    await until_row(url, "SELECT 1 FROM engine_runs WHERE id = %s AND status = 'failed'", run_id)
    await worker.kill()
    stage.open("provider")

    await workers.command("runs", "retry", run_id, "--database", url)
    assert (await engine_run(web, run_id)).status is EngineStatus.PENDING
    assert (await runs(workers, url, "show", run_id))["status"] == RunStatus.RUNNING.value
    await workers.add_worker()

    await assert_well(web, run_id, said=TALK)


async def test_what_has_not_failed_is_not_driven_again(url: str, web: Signoff, workers: Fleet) -> None:
    await workers.add_worker()
    run_id = await send(web, "talk A-1")
    await assert_well(web, run_id, said=TALK)

    for verb, why in (("retry", "has not failed: completed"), ("cancel", "has ended: completed")):
        assert f"run {run_id!r} {why}" in await workers.refused("runs", verb, run_id, "--database", url)

    await assert_well(web, run_id, said=TALK)


async def test_pruning_leaves_nothing_with_dbos(url: str, web: Signoff, workers: Fleet) -> None:
    await workers.add_worker()
    run_id = await send(web, "pay A-1")
    await approve(web, run_id)
    await assert_well(web, run_id)
    waiting = await send(web, "pay A-2")
    await parked(web, waiting)

    assert await workers.command("runs", "prune", "--older-than-days", "0", "--database", url) == "pruned: 1"

    with psycopg.connect(url) as connection:
        left = connection.execute("SELECT workflow_uuid FROM dbos.workflow_status").fetchall()
    assert left
    assert [name for (name,) in left if waiting not in name] == []
