"""The database is away for longer than a worker's lease, and comes back: the workers lived all the time."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from signoff.adapters.system import SystemClock
from tests.processes.fleet import Fleet, Nursery
from tests.processes.stage_app import DATABASE, FOLDER, HASTY, SHORT, TALK, Stage, desk
from tests.processes.turns import approve, assert_well, cards_of, end_well, engine_run, send, until_row
from tests.services import Server, own_postgres

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(150, method="signal")]

OUTAGES = 2
WORKERS = 3


@pytest.fixture
def postgres() -> Iterator[Server]:
    """A PostgreSQL of the test's own."""
    with own_postgres() as server:
        yield server


async def test_workers_do_not_take_each_other_for_dead(
    nursery: Nursery, postgres: Server, stage: Stage, tmp_path: Path
) -> None:
    """None of them could beat. An action that one executes would be in doubt, although it is about to end well."""
    environment = {DATABASE: postgres.url, FOLDER: str(stage.folder), HASTY: "1"}
    async with (
        desk(postgres.url, stage).running() as web,
        Fleet(nursery, tmp_path, environment).running(workers=WORKERS),
    ):
        for number in range(OUTAGES):
            stage.shut(f"transfer-A-{number}")
            run_id = await send(web, f"transfer A-{number}")
            await approve(web, run_id)
            await stage.reached(f"transfer-A-{number}")

            await asyncio.to_thread(postgres.stop, signal.SIGQUIT)
            await asyncio.sleep(1.5 * SHORT.lease.total_seconds())  # this long it has to be
            back_at = SystemClock().now()
            await asyncio.to_thread(postgres.start)
            await until_row(
                postgres.url,
                "SELECT 1 FROM engine_workers HAVING count(*) = %s AND min(beat_at) > %s",
                WORKERS,
                back_at.timestamp() * 1_000_000,
            )
            await assert_well(web, await send(web, f"talk B-{number}"), said=TALK)
            stage.open(f"transfer-A-{number}")

            await assert_well(web, run_id)
            assert cards_of(await end_well(web, run_id)) == 1
            assert (await engine_run(web, run_id)).crashes == 0
            assert len(stage.effects(f"transfer A-{number}")) == 1
