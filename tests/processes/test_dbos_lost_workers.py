"""Workers that die or are paused in the middle of something: others go on, and who comes back can do no harm."""

from datetime import timedelta

import psycopg
import pytest

from signoff import Signoff
from signoff.adapters.engine.dbos import LIMITS
from signoff.errors import StreamReset
from signoff.ports.engine import EngineStatus
from signoff.service.decide import Verb
from tests.processes.fleet import Fleet
from tests.processes.stage_app import PATIENT, TALK, Stage
from tests.processes.turns import (
    ANA,
    approve,
    assert_well,
    card,
    cards_of,
    decide,
    end_well,
    engine_run,
    heard,
    rows,
    send,
    until_row,
)

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]


# --- killed ---------------------------------------------------------------------------------------------------


async def test_a_killed_workers_run_goes_on_within_ten_seconds(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """With the limits that nobody set, and by the database's account: from its last sign of life to the next claim."""
    environment = {PATIENT: "1"}
    stage.shut("policy-A-1")
    dying = await workers.add_worker(environment=environment)
    run_id = await send(web, "pay A-1")
    assert await stage.reached("policy-A-1") == [dying.pid]
    await workers.add_worker(environment=environment)

    await dying.kill()
    stage.open("policy-A-1")
    before = (await engine_run(web, run_id)).fence
    (last_beat,) = rows(
        url,
        "SELECT beat_at FROM engine_workers JOIN engine_runs ON owner = engine_workers.id WHERE engine_runs.id = %s",
        run_id,
    )
    taken = await until_row(url, "SELECT updated_at FROM engine_runs WHERE id = %s AND fence > %s", run_id, before)
    after = timedelta(microseconds=taken["updated_at"] - last_beat["beat_at"])
    print(f"taken over {after.total_seconds():.1f} s after the last sign of life")

    # A worker that is taken for dead has been silent for its lease, and each living one looks every sweep.
    assert LIMITS.lease + LIMITS.sweep <= timedelta(seconds=9)
    assert LIMITS.lease <= after < 3 * (LIMITS.lease + LIMITS.sweep), "this machine may be slow, but not so slow"
    await approve(web, run_id)
    await assert_well(web, run_id)
    assert len(stage.effects("pay A-1")) == 1


async def test_a_run_leaves_its_process_for_the_model_call_and_comes_back_on_another(
    url: str, web: Signoff, workers: Fleet
) -> None:
    first = await workers.add_worker("runs")
    run_id = await send(web, "talk A-1")
    await until_row(
        url,
        "SELECT 1 FROM engine_runs JOIN engine_tasks ON run_id = id"
        " WHERE id = %s AND state = 'queued' AND owner IS NULL",
        run_id,
    )
    await first.kill()
    await workers.add_worker("runs")
    await workers.add_worker("llm")

    await assert_well(web, run_id, said=TALK)
    assert (await engine_run(web, run_id)).crashes == 0  # nobody died with it


async def test_a_model_call_whose_worker_dies_is_made_again(stage: Stage, web: Signoff, workers: Fleet) -> None:
    stage.shut("model-A-1-0")
    await workers.add_worker("runs")
    dying = await workers.add_worker("llm")
    run_id = await send(web, "talk A-1")
    assert await stage.reached("model-A-1-0") == [dying.pid]
    other = await workers.add_worker("llm")

    await dying.kill()
    stage.open("model-A-1-0")

    await assert_well(web, run_id, said=TALK)
    assert await stage.reached("model-A-1-0") == [dying.pid, other.pid]
    assert cards_of(await end_well(web, run_id)) == 0


async def test_an_action_whose_worker_dies_is_in_doubt_and_a_person_is_asked(
    stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """Another worker notices, and does not do it again by itself."""
    stage.shut("transfer-A-1")
    await workers.add_worker("runs,llm")
    dying, other = await workers.add_worker("tools"), await workers.add_worker("tools")
    run_id = await send(web, "transfer A-1")
    await approve(web, run_id)
    (pid,) = await stage.reached("transfer-A-1")
    victim, heir = (dying, other) if pid == dying.pid else (other, dying)

    await victim.kill()
    stage.open("transfer-A-1")
    shown = await card(web, run_id, in_doubt=True)
    assert stage.effects("transfer A-1") == []
    await decide(web, shown)

    await assert_well(web, run_id)
    assert stage.effects("transfer A-1") == [heir.pid]


# --- paused ---------------------------------------------------------------------------------------------------


async def test_a_paused_worker_that_drove_a_run_is_shut_out_of_it(stage: Stage, web: Signoff, workers: Fleet) -> None:
    """It comes back while another one drives the run, and is the first to go on from where both are."""
    stage.shut("policy-A-1")
    zombie = await workers.add_worker()
    run_id = await send(web, "transfer A-1")
    assert await stage.reached("policy-A-1") == [zombie.pid]

    zombie.pause()
    other = await workers.add_worker()
    assert await stage.reached("policy-A-1", times=2) == [zombie.pid, other.pid]
    stage.let_through("policy-A-1", zombie.pid)
    zombie.resume()
    await zombie.logged(f"run {run_id!r} is driven elsewhere")
    await zombie.stop()
    stage.open("policy-A-1")
    await approve(web, run_id)

    await assert_well(web, run_id)
    assert cards_of(await end_well(web, run_id)) == 1
    assert stage.effects("transfer A-1") == [other.pid]


async def test_a_worker_that_is_paused_in_a_transaction_holds_nobody_up(
    url: str, stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """It has locked the run's row, and its connection is as alive as its kernel."""
    stage.shut("policy-A-1")
    zombie = await workers.add_worker()
    run_id = await send(web, "transfer A-1")
    await stage.reached("policy-A-1")
    with psycopg.connect(url) as lock:
        lock.execute("SELECT 1 FROM engine_runs WHERE id = %s FOR UPDATE", (run_id,))
        stage.open("policy-A-1")
        waits = "SELECT pid FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
        waiting = await until_row(url, waits, lock.info.backend_pid)
        zombie.pause()
    await until_row(
        url, "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state = 'idle in transaction'", waiting["pid"]
    )

    other = await workers.add_worker()
    shown = await card(web, run_id)
    zombie.resume()
    await zombie.logged(f"run {run_id!r} is driven elsewhere")
    await zombie.stop()
    await decide(web, shown)

    await assert_well(web, run_id)
    assert stage.effects("transfer A-1") == [other.pid]


async def test_a_paused_worker_that_comes_back_with_an_action_does_not_answer_for_the_person_who_was_asked(
    stage: Stage, web: Signoff, workers: Fleet
) -> None:
    stage.shut("transfer-A-1")
    await workers.add_worker("runs,llm")
    zombie = await workers.add_worker("tools")
    run_id = await send(web, "transfer A-1")
    await approve(web, run_id)
    assert await stage.reached("transfer-A-1") == [zombie.pid]

    zombie.pause()
    stage.open("transfer-A-1")
    await workers.add_worker("tools")
    shown = await card(web, run_id, in_doubt=True)
    zombie.resume()
    assert await stage.done("transfer A-1") == [zombie.pid]
    await zombie.stop()
    assert (await engine_run(web, run_id)).status is EngineStatus.SUSPENDED
    await decide(web, shown, Verb.SETTLE, output="A-1 transferred, says the bank")

    await assert_well(web, run_id)
    assert stage.effects("transfer A-1") == [zombie.pid]
    outputs = [frame["output"] for frame in await end_well(web, run_id) if frame["kind"] == "tool-output"]
    assert outputs == ["A-1 transferred, says the bank"]


async def test_a_paused_worker_that_comes_back_with_an_idempotent_action_is_too_late(
    stage: Stage, web: Signoff, workers: Fleet
) -> None:
    stage.shut("pay-A-1")
    await workers.add_worker("runs,llm")
    zombie = await workers.add_worker("tools")
    run_id = await send(web, "pay A-1")
    await approve(web, run_id)
    await stage.reached("pay-A-1")

    zombie.pause()
    stage.open("pay-A-1")
    other = await workers.add_worker("tools")
    await end_well(web, run_id)
    zombie.resume()
    assert await stage.refused("pay A-1") == [zombie.pid]
    await zombie.stop()

    await assert_well(web, run_id)
    assert cards_of(await end_well(web, run_id)) == 1
    assert stage.effects("pay A-1") == [other.pid]


async def test_a_paused_worker_that_was_speaking_is_not_heard_any_more(
    stage: Stage, web: Signoff, workers: Fleet
) -> None:
    """It comes back while another one speaks, and says all that it has to say."""
    stage.shut("model-A-1-0")
    await workers.add_worker("runs")
    zombie = await workers.add_worker("llm")
    run_id = await send(web, "talk A-1")
    assert await stage.reached("model-A-1-0") == [zombie.pid]
    first = await heard(web, run_id)

    zombie.pause()
    other = await workers.add_worker("llm")
    await heard(web, run_id, after=first)
    assert await stage.reached("model-A-1-0") == [zombie.pid, other.pid]
    with pytest.raises(StreamReset):  # who has seen the lost words is told to reload
        await web.attach(ANA, run_id, after=first)
    stage.let_through("model-A-1-0", zombie.pid)
    zombie.resume()
    await zombie.stop()
    stage.open("model-A-1-0")

    await assert_well(web, run_id, said=TALK)
