"""A store that is killed around a commit: what is in the database, and that nobody hears (`CommitFaults`)."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from signoff.ports.store import Tx
from tests.conformance.store.conftest import OpenStore
from tests.conformance.store.rows import a_thread


class Killed(BaseException):
    """What a simulation raises."""


class Faults:
    """Notes the labels of each commit and dies at one of them."""

    def __init__(self, *, die_before: str = "", die_after: str = "") -> None:
        self.committed: list[list[str]] = []
        self.died = threading.Event()
        self._die_before = die_before
        self._die_after = die_after

    def before_commit(self, labels: Sequence[str]) -> None:
        if self._die_before in labels or self.died.is_set():
            self.died.set()
            raise Killed

    def after_commit(self, labels: Sequence[str]) -> None:
        self.committed.append(list(labels))
        if self._die_after in labels:
            self.died.set()
            raise Killed


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_killed_store_tells_nobody_and_takes_nothing_more(open_store: OpenStore, moment: str) -> None:
    faults = Faults(die_before="b") if moment == "before" else Faults(die_after="b")
    called: list[str] = []

    def work(tx: Tx) -> None:
        tx.insert_thread(a_thread("b"))
        tx.emit("s", [{"kind": "text", "text": "x"}])
        tx.on_commit(lambda: called.append("b"))

    async with open_store(faults=faults) as store:
        await store.transact("a", lambda tx: tx.insert_thread(a_thread("a")))

        killed = asyncio.create_task(store.transact("b", work))
        await asyncio.to_thread(faults.died.wait, 5)
        late = asyncio.create_task(store.transact("c", lambda tx: tx.insert_thread(a_thread("c"))))
        store.transact_soon("d", lambda tx: tx.insert_thread(a_thread("d")))
        # The moment of death is another thread's; from then on no read is answered either.
        while True:
            reading = asyncio.create_task(store.read(lambda tx: tx.thread("a")))
            answered, _ = await asyncio.wait({reading}, timeout=0.1)
            if not answered:
                break
        await store.close()

        tasks = {killed, late, reading}
        assert not any(task.done() for task in tasks)
        assert called == []
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async with open_store() as store:
        found = await store.read(lambda tx: [id_ for id_ in "abcd" if tx.thread(id_)])
        frames = await store.read(lambda tx: tx.frames("s", after=0, limit=9))
    assert found == (["a"] if moment == "before" else ["a", "b"])
    assert len(frames) == (0 if moment == "before" else 1)


async def test_what_is_ready_in_one_turn_of_the_loop_shares_a_commit(open_store: OpenStore) -> None:
    faults = Faults()

    def work(tx: Tx) -> None:
        tx.change_thread("thread_1", title="x")

    def fail(tx: Tx) -> None:
        raise RuntimeError("no")

    async with open_store(faults=faults) as store:
        store.transact_soon("soon", work)
        await asyncio.gather(
            store.transact("a", work),
            store.transact("fails", fail),
            store.transact("b", work),
            return_exceptions=True,
        )
        with pytest.raises(RuntimeError, match="no"):
            await store.transact("fails alone", fail)
        await store.transact("c", work)

    assert faults.committed == [["soon", "a", "b"], ["c"]]


async def test_pieces_that_nobody_waits_for_share_commits(open_store: OpenStore) -> None:
    """Text that streams in must not cost a commit a word."""
    faults = Faults()

    async with open_store(faults=faults) as store:
        for _ in range(100):
            store.transact_soon("soon", lambda tx: tx.change_thread("thread_1", title="x"))
            await asyncio.sleep(0)
        await store.transact("carrier", lambda tx: None)

    assert sum(map(len, faults.committed)) == 101
    assert len(faults.committed) < 20
