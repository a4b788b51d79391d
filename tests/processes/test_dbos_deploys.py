"""Runs that wait while the code under them is replaced: they go on, or the one on call is told why not."""

import json

import pytest

from signoff import Signoff
from signoff.ports.engine import EngineStatus
from tests.processes.fleet import Fleet
from tests.processes.stage_app import DEPLOY, NEXT, Stage, desk
from tests.processes.turns import approve, assert_well, ended, engine_run, journal, left, parked, rows, send, until_row

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]


async def parked_under(deploy: str, web: Signoff, workers: Fleet, message: str) -> str:
    """A run that waits for a person, and whose deploy has ended."""
    worker = await workers.add_worker(environment={DEPLOY: deploy})
    run_id = await send(web, message)
    await parked(web, run_id)
    await worker.stop()
    return run_id


async def test_a_run_goes_on_under_an_agent_that_has_changed(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    run_id = await parked_under("", web, workers, "pay A-1")
    worker = await workers.add_worker(environment={DEPLOY: "kind"})
    await approve(web, run_id)

    await assert_well(web, run_id)
    assert stage.effects("pay A-1") == [worker.pid]
    # To DBOS all deploys are one version, or it would leave to nobody what was parked under another one.
    versions = rows(url, "SELECT DISTINCT application_version FROM dbos.workflow_status")
    assert versions == [{"application_version": "signoff-journal-1"}]


async def test_a_run_of_the_older_shape_goes_on_in_its_own_shape(stage: Stage, web: Signoff, workers: Fleet) -> None:
    older = await parked_under("older", web, workers, "pay A-1")
    await workers.add_worker()
    todays = await send(web, "pay A-2")
    for run_id in (older, todays):
        await approve(web, run_id)
        await assert_well(web, run_id)

    patches = {
        run_id: [entry.name for entry in await journal(web, run_id) if entry.kind == "patch"]
        for run_id in (older, todays)
    }
    assert patches == {older: [], todays: ["agent:parallel-tools", "agent:history-select"]}
    assert len(stage.effects("pay A-1")) == len(stage.effects("pay A-2")) == 1


async def test_a_run_that_a_deploy_cannot_go_on_with_says_why_and_goes_on_after_the_roll_back(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    run_id = await parked_under("", web, workers, "transfer A-1")
    why = (
        f"run {run_id!r} diverged from its journal at position 1: "
        "the journal holds patch:agent:parallel-tools, the code asks for record:persist:greeting"
    )

    broken = await workers.add_worker(environment={DEPLOY: "broken"})
    await approve(web, run_id)
    end = (await ended(web, run_id))[-1]
    await left(web, run_id)
    assert (end["kind"], end["code"]) == ("error", "replay_diverged")
    assert why in str(end)
    shown = json.loads(await workers.command("runs", "show", run_id, "--json", "--database", url))
    assert (shown["errorCode"], shown["error"]) == ("replay_diverged", why)
    assert why in broken.log.read_text()
    assert stage.effects("transfer A-1") == []

    await broken.stop()
    await workers.command("runs", "retry", run_id, "--database", url)
    worker = await workers.add_worker()
    await assert_well(web, run_id)
    assert stage.effects("transfer A-1") == [worker.pid]


async def test_a_run_whose_workflow_nobody_has_waits_for_a_deploy_that_has_it(
    url: str, stage: Stage, workers: Fleet
) -> None:
    """As after a roll-back past the deploy that began it. The log says so, and no attempt or crash is counted."""
    todays = await workers.add_worker()
    async with desk(url, stage, {DEPLOY: "next"}).running() as web:
        engine = web.engine
        assert engine is not None
        await web.store.transact("begin", lambda tx: engine.start(tx, run_id="run_next", workflow=NEXT, input_={}))
        await todays.logged(f"run 'run_next' waits: its workflow {NEXT!r} is not registered in this worker")
        # Put back into its queue by a sweep, it is met once more, and left again.
        await todays.logged("run 'run_next' was lost (pending) and is driven again")
        assert (await engine_run(web, "run_next")).status is EngineStatus.PENDING

        await workers.add_worker(environment={DEPLOY: "next"})
        await until_row(url, "SELECT 1 FROM engine_runs WHERE id = 'run_next' AND status = 'completed'")
        assert (await engine_run(web, "run_next")).crashes == 0
