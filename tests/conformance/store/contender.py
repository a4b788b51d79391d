"""A process of its own that works on a store together with others. Run by `test_processes`.

``python -m tests.conformance.store.contender <url> <name> <task> …`` says ``ready``, waits for a line, does its tasks
and prints their results as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable

from signoff.adapters.stores.sql import SqlStore
from signoff.domain.audit import AuditKind
from signoff.domain.call import OPEN, CallStatus
from signoff.domain.frame import done, text
from signoff.domain.run import RunStatus
from signoff.ports.store import Tx
from tests.conformance.store.rows import a_call, a_message, a_run, a_thread, at

RUNS = 50


async def decide(store: SqlStore, name: str) -> int:
    """Ten decisions of one card; how many won."""

    def work(person: str) -> Callable[[Tx], bool]:
        def decide_and_note(tx: Tx) -> bool:
            won = tx.decide_call("call_1", expect=OPEN, now=at(1), status=CallStatus.APPROVED, decided_by=person)
            if won:
                note(tx, person)
            return won

        return decide_and_note

    return sum(await asyncio.gather(*(store.transact("decide", work(f"{name} {n}")) for n in range(10))))


async def claim(store: SqlStore, name: str) -> int:
    """Ten claims of one thread; how many won."""

    def work(run_id: str) -> Callable[[Tx], bool]:
        return lambda tx: tx.claim_thread("thread_1", run_id)

    return sum(await asyncio.gather(*(store.transact("claim", work(f"{name}_{n}")) for n in range(10))))


async def drive(store: SqlStore, name: str) -> int:
    """Fifty whole runs side by side; how many did not fail."""
    results = await asyncio.gather(*(_drive_one(store, f"{name}_{n}") for n in range(RUNS)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            print(repr(result), file=sys.stderr)
    return results.count(None)


async def _drive_one(store: SqlStore, run_id: str) -> None:
    def start(tx: Tx) -> None:
        tx.insert_thread(a_thread(run_id))
        tx.insert_run(a_run(run_id, thread_id=run_id))
        tx.insert_message(a_message(run_id, thread_id=run_id))
        tx.insert_call(a_call(run_id, run_id=run_id, message_id=run_id, thread_id=run_id))

    def stream(tx: Tx) -> None:
        tx.emit(run_id, [text("a"), text("b")])

    def settle(tx: Tx) -> None:
        assert tx.decide_call(run_id, expect=OPEN, now=at(1), status=CallStatus.APPROVED)
        note(tx, run_id)
        assert tx.settle_run(run_id, status=RunStatus.COMPLETED, ended_at=at(2))
        tx.emit(run_id, [done()])

    await store.transact("start", start)
    for _ in range(5):
        store.transact_soon("stream", stream)
        await store.read(lambda tx: tx.run(run_id))
    await store.transact("settle", settle)
    frames = await store.read(lambda tx: tx.frames(run_id, after=0, limit=100))
    assert [numbered.seq for numbered in frames] == list(range(1, 12))


def note(tx: Tx, person: str) -> None:
    """Append to the chain that all processes share."""
    tx.append_audit(
        tenant="acme", at=at(1), kind=AuditKind.APPROVED, run_id=None, call_id="call_1", actor_id=person, data={}
    )


TASKS: dict[str, Callable[[SqlStore, str], Awaitable[int]]] = {"decide": decide, "claim": claim, "drive": drive}


async def main(url: str, name: str, *tasks: str) -> None:
    store = SqlStore(url)
    await store.open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps([await TASKS[task](store, name) for task in tasks]), flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
