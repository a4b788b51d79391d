"""Cases 10: stores and operation."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from signoff import ActorQuota, Agent, Delegate, EventName, Requirement
from signoff.domain.run import RunStatus, Usage
from signoff.errors import EngineUnavailable, QuotaExceeded
from signoff.service.read import quota_today
from signoff.testing.outside import Bank
from signoff.testing.scripted import ask_for, boom, turn
from signoff.testing.stores import sql_stores
from signoff.testing.world import ANA, Script, World
from tests.cases.conftest import DATABASE, NewWorld
from tests.cases.desk import desk, refund_tool
from tests.cases.faults import BusyStore

ONE_REFUND: Script = [ask_for("refund", {"order": "A1"}), "Done."]


async def test_c55_one_broken_run_and_a_busy_store_stop_no_other_run(bank: Bank, tmp_path: Path) -> None:
    url, refusals = f"sqlite:///{tmp_path / DATABASE}", list[str]()
    world = World(
        lambda changed: BusyStore(url, changed=changed, refusals=refusals),
        durable="strict",
        agents=[desk(refund_tool(bank))],
        script=ONE_REFUND,
    )
    await world.start()
    runs = [await world.send() for _ in range(10)]
    cards = [await world.card(run) for run in runs]
    for run in runs:
        await world.parked(run)

    # All are approved where nobody drives runs, so that the next process has to find them.
    await world.redeploy(serve=False)
    for card in cards:
        await world.approve(card)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("UPDATE checkpoints SET body = '{broken' WHERE run_id = ?", [runs[4].run_id])
        connection.commit()
    refusals += ["the database is locked", "the database is locked"]
    await world.restart(serve=True)
    for _ in range(3):
        world.clock.advance(timedelta(seconds=5))
        await world.inbox()
    ended = [await world.ended(run) for run in runs]
    await world.close()

    assert refusals == []
    statuses = [run.status for run in ended]
    assert (statuses.count(RunStatus.COMPLETED), statuses.index(RunStatus.FAILED)) == (9, 4)
    assert len(bank.payments) == 9
    set_aside = [event.run_id for event in world.events if event.name is EventName.RUN_SET_ASIDE]
    assert set_aside == [runs[4].run_id]


async def test_c56_fifty_runs_of_two_processes_share_one_file(durable_world: NewWorld, bank: Bank) -> None:
    world = await durable_world(refund_tool(bank), script=ONE_REFUND)
    processes = [world.app, await world.start()]
    runs = await asyncio.gather(*(world.send(to=processes[n % 2]) for n in range(50)))

    async def decide(number: int) -> None:
        await world.approve(await world.card(runs[number]), to=processes[(number // 2) % 2])

    await asyncio.gather(*(decide(number) for number in range(50)))
    for run in runs:
        await world.completed(run)

    assert len(bank.payments) == 50


@pytest.fixture
async def broken_database(tmp_path: Path) -> str:
    """A database in which the engine's tables are not what they should be."""
    url = f"sqlite:///{tmp_path / DATABASE}"
    world = World(sql_stores(url), durable=False, agents=[desk()])
    await world.start()
    await world.close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("ALTER TABLE engine_runs RENAME COLUMN fence TO gate")
    return url


async def test_c57_without_its_engine_the_application_says_that_runs_are_not_durable(
    broken_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(sql_stores(broken_database), durable=True, agents=[desk()])
    await world.start()
    run = await world.send()
    row = await world.completed(run)
    await world.close()

    assert not row.durable
    assert not world.app.runner.durable
    assert EventName.ENGINE_FALLBACK in [event.name for event in world.events]
    assert "NOT durable" in caplog.text


async def test_c57_strict_refuses_to_start(broken_database: str) -> None:
    world = World(sql_stores(broken_database), durable="strict", agents=[desk()])

    with pytest.raises(EngineUnavailable):
        await world.start()


async def test_c58_every_model_call_counts_whatever_becomes_of_its_run(new_world: NewWorld, bank: Bank) -> None:
    ten = Usage(input_tokens=7, output_tokens=3)
    clerk = Agent("clerk", instructions="Work.")
    tools = [refund_tool(bank, approval=Requirement(ttl=timedelta(minutes=1)))]
    world = await new_world(
        agents=[Agent("desk", instructions="Serve.", tools=tools, delegates_to=[Delegate(clerk)]), clerk],
        quota=ActorQuota(daily_tokens=80),
        script={
            "Fail.": [turn(ask_for("nothing"), usage=ten), boom("the provider is gone")],
            "Refund.": [turn(ask_for("refund", {"order": "A1"}), usage=ten), turn("Too late.", usage=ten)],
            "Delegate.": [
                turn(ask_for("ask_clerk", {"task": "Work."}), usage=ten),
                turn("Done.", usage=ten),
            ],
            "Work.": [turn("Worked.", usage=ten)],
        },
    )

    async def used() -> int:
        return (await quota_today(world.app.deps, ANA)).used_tokens

    assert (await world.ended(await world.send("Fail."))).status is RunStatus.FAILED
    assert await used() == 10

    cancelled = await world.send("Refund.")
    await world.card(cancelled)
    await world.cancel(cancelled)
    await world.ended(cancelled)
    assert await used() == 20

    expired = await world.send("Refund.")
    await world.card(expired)
    await world.parked(expired)
    world.clock.advance(timedelta(minutes=1))
    await world.completed(expired)
    assert await used() == 40

    await world.completed(await world.send("Delegate."))
    assert await used() == 70

    assert (await world.ended(await world.send("Fail."))).status is RunStatus.FAILED
    with pytest.raises(QuotaExceeded):
        await world.send("Fail.")
    assert bank.orders == []
