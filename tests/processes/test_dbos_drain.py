"""SIGTERM while a worker is busy: it finishes what it can, hands over the rest, and ends well."""

import pytest

from signoff import Signoff
from tests.processes.fleet import Fleet
from tests.processes.stage_app import TALK, Stage
from tests.processes.turns import (
    approve,
    assert_well,
    card,
    cards_of,
    decide,
    end_well,
    engine_run,
    send,
)

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]


async def test_a_tool_that_is_executed_is_waited_for(stage: Stage, web: Signoff, workers: Fleet) -> None:
    stage.shut("transfer-A-1")
    leaving = await workers.add_worker()
    run_id = await send(web, "transfer A-1")
    await approve(web, run_id)
    await stage.reached("transfer-A-1")

    await leaving.stopping()
    await workers.add_worker()
    stage.open("transfer-A-1")
    await leaving.stopped()

    await assert_well(web, run_id)
    assert stage.effects("transfer A-1") == [leaving.pid]
    assert cards_of(await end_well(web, run_id)) == 1


async def test_a_model_call_that_is_under_way_is_waited_for(stage: Stage, web: Signoff, workers: Fleet) -> None:
    stage.shut("model-A-1-0")
    leaving = await workers.add_worker()
    run_id = await send(web, "talk A-1")
    await stage.reached("model-A-1-0")

    await leaving.stopping()
    await workers.add_worker()
    stage.open("model-A-1-0")
    await leaving.stopped()

    await assert_well(web, run_id, said=TALK)
    assert await stage.reached("model-A-1-0") == [leaving.pid]  # nobody had to make it again


async def test_nothing_is_begun_any_more(stage: Stage, web: Signoff, workers: Fleet) -> None:
    """A worker that still finishes something takes no new run, and none of its own runs' next steps."""
    stage.shut("model-A-1-0")
    leaving = await workers.add_worker()
    old = await send(web, "pay A-1")
    await stage.reached("model-A-1-0")

    await leaving.stopping()
    new = await send(web, "pay A-2")
    other = await workers.add_worker()
    await approve(web, new)
    await end_well(web, new)
    stage.open("model-A-1-0")
    await leaving.stopped()
    await approve(web, old)

    await assert_well(web, old)
    assert await stage.reached("model-A-2-0") == [other.pid]
    assert stage.effects("pay A-1") == stage.effects("pay A-2") == [other.pid]


async def test_what_does_not_end_in_time_is_handed_over(stage: Stage, web: Signoff, workers: Fleet) -> None:
    """A model call is made again at once, and no crash is counted; for an action a person is asked."""
    stage.shut("model-A-1-0")
    stage.shut("transfer-A-2")
    leaving = await workers.add_worker()
    talk, transfer = await send(web, "talk A-1"), await send(web, "transfer A-2")
    await stage.reached("model-A-1-0")
    await approve(web, transfer)
    await stage.reached("transfer-A-2")
    other = await workers.add_worker()

    await leaving.stop()
    assert await stage.reached("model-A-1-0", times=2) == [leaving.pid, other.pid]
    shown = await card(web, transfer, in_doubt=True)
    assert (await engine_run(web, talk)).crashes == 0
    stage.open("model-A-1-0")

    await assert_well(web, talk, said=TALK)
    assert stage.effects("transfer A-2") == []
    stage.open("transfer-A-2")
    await decide(web, shown)
    await assert_well(web, transfer)
    assert stage.effects("transfer A-2") == [other.pid]
