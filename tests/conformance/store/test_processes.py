"""Several processes on one database (C10, C16, C56)."""

import asyncio
import json
import sys

from signoff.adapters.stores.sql import SqlStore
from signoff.domain.run import RunStatus
from tests.conformance.store.conftest import OpenStore
from tests.conformance.store.contender import RUNS
from tests.conformance.store.rows import a_call, a_run, a_thread, insert
from tests.conformance.store.test_records import assert_is_chain


async def contend(url: str, *tasks: str) -> list[list[int]]:
    """What each of two processes says to each task, both having begun at the same moment."""
    contenders = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.conformance.store.contender", url, name, *tasks),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in ("p0", "p1")
    ]
    for contender in contenders:
        assert contender.stdout is not None
        assert await contender.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(contender.communicate(b"go\n") for contender in contenders))
    assert [contender.returncode for contender in contenders] == [0, 0]
    return [json.loads(answer) for answer, _ in answers]


async def test_of_twenty_decisions_and_claims_in_two_processes_one_wins(
    database_url: str, open_store: OpenStore
) -> None:
    async with open_store() as store:
        await insert(store, a_thread(), a_run(), a_call("call_1"))

        (decided_0, claimed_0), (decided_1, claimed_1) = await contend(database_url, "decide", "claim")

        call = await store.read(lambda tx: tx.call("call_1"))
        chain = await store.read(lambda tx: tx.audit(tenant="acme"))
        thread = await store.read(lambda tx: tx.thread("thread_1"))
    assert decided_0 + decided_1 == 1
    assert call is not None
    assert [entry.actor_id for entry in chain] == [call.decided_by]
    assert claimed_0 + claimed_1 == 1
    assert thread is not None
    assert thread.active_run_id is not None
    assert thread.active_run_id.startswith("p0" if claimed_0 else "p1")


async def test_a_hundred_runs_in_two_processes_all_end_well(database_url: str, open_store: OpenStore) -> None:
    """C56: nobody sees "database is locked", and what they share stays whole."""
    async with open_store() as store:
        assert await contend(database_url, "drive") == [[RUNS], [RUNS]]

        ended = await store.read(lambda tx: tx.runs(status=RunStatus.COMPLETED, limit=1000))
        chain = await store.read(lambda tx: tx.audit(tenant="acme"))
    assert len(ended) == 2 * RUNS
    assert len(chain) == 2 * RUNS
    assert_is_chain(chain)


async def test_processes_that_start_together_on_a_new_database_make_one_schema(database_url: str) -> None:
    stores = [SqlStore(database_url) for _ in range(4)]

    await asyncio.gather(*(store.open() for store in stores))

    await insert(stores[0], a_thread())
    for store in stores:
        assert await store.read(lambda tx: tx.thread("thread_1")) == a_thread()
        await store.close()


async def test_frames_of_another_process_wake_readers_here(open_store: OpenStore) -> None:
    async with open_store() as here, open_store() as there:
        await there.transact("before", lambda tx: tx.emit("s", [{"kind": "text", "text": "a"}]))
        woken = asyncio.Event()
        end = here.subscribe("s", woken.set)
        # The first wake-up may have no cause: it covers what came before.
        await asyncio.wait_for(woken.wait(), 5)

        for number in range(2, 5):
            woken.clear()
            await there.transact("emit", lambda tx: tx.emit("s", [{"kind": "text", "text": "b"}]))
            await asyncio.wait_for(woken.wait(), 5)
            frames = await here.read(lambda tx: tx.frames("s", after=0, limit=10))
            assert len(frames) == number
        end()
