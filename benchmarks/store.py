"""What the store costs: records a second, and CPU per statement of an approval turn.

``python benchmarks/store.py [url]`` (default: a new SQLite file). A *record* is one transaction that inserts two rows:
what one checkpoint with its row costs. The peer is the same two rows written straight through the driver, one
commit each, from one thread: what a store without group commit could do at best.
"""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from signoff.adapters.stores.sql import SqlStore
from signoff.adapters.stores.sql.statement import Statement
from signoff.domain.approval import Vote
from signoff.domain.audit import AuditKind
from signoff.domain.call import OPEN, Call, CallStatus, ToolKind
from signoff.domain.frame import done, text
from signoff.domain.run import Run, RunStatus, Usage, UsageEntry
from signoff.domain.thread import Message, Role, Thread
from signoff.ports.store import Tx

T = TypeVar("T")

RECORDS = 3000
TURNS = 200
NOW = datetime(2026, 1, 1, tzinfo=UTC)
COST = Decimal("0.0001")


def record(key: str) -> Callable[[Tx], None]:
    """Two rows, as a checkpoint and what it records."""

    def work(tx: Tx) -> None:
        tx.add_vote(Vote(call_id=key, actor_id="ana", via="web", at=NOW))
        tx.add_vote(Vote(call_id=key, actor_id="bo", via="web", at=NOW))

    return work


async def records_per_second(store: SqlStore, in_flight: int, name: str) -> float:
    """`RECORDS` records, `in_flight` of them at a time."""
    numbers = iter(range(RECORDS))

    async def write() -> None:
        for number in numbers:
            await store.transact("record", record(f"{name} {number}"))

    started = time.perf_counter()
    await asyncio.gather(*(write() for _ in range(in_flight)))
    return RECORDS / (time.perf_counter() - started)


def peer_records_per_second(path: Path) -> float:
    """The same two rows through the driver alone, durable, one commit a record."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE votes (call_id TEXT, actor_id TEXT, via TEXT, at BIGINT, PRIMARY KEY (call_id, actor_id))"
    )
    started = time.perf_counter()
    for number in range(RECORDS):
        connection.execute("BEGIN IMMEDIATE")
        for actor in ("ana", "bo"):
            connection.execute("INSERT INTO votes VALUES (?, ?, ?, ?)", (str(number), actor, "web", 0))
        connection.execute("COMMIT")
    rate = RECORDS / (time.perf_counter() - started)
    connection.close()
    return rate


def approval_turn(key: str) -> Callable[[Tx], None]:
    """The statements of a turn with one read, one approved action and three model calls (about 70)."""

    def work(tx: Tx) -> None:
        tx.insert_thread(Thread(id=key, actor_id="ana", title="t", created_at=NOW, updated_at=NOW))
        tx.claim_thread(key, key)
        tx.insert_run(
            Run(
                id=key,
                thread_id=key,
                actor_id="ana",
                agent="desk",
                stream_id=key,
                input={"message": "x"},
                created_at=NOW,
            )
        )
        for step in range(3):
            message = Message(
                id=f"{key} {step}", thread_id=key, role=Role.ASSISTANT, content="some text", step=step, created_at=NOW
            )
            for _ in range(4):
                tx.emit(key, [text("delta")] * 20)
            tx.insert_message(message)
            tx.add_to_run(key, steps=1, input_tokens=10, output_tokens=2, cost_usd=COST)
            tx.add_usage(
                UsageEntry(
                    id=f"{key} {step}",
                    run_id=key,
                    thread_id=key,
                    actor_id="ana",
                    tenant="",
                    agent="desk",
                    model="m",
                    step=step,
                    attempt=1,
                    usage=Usage(input_tokens=10, output_tokens=2),
                    cost_usd=COST,
                    at=NOW,
                    day="2026-01-01",
                )
            )
            tx.messages_of(key, last=20)
            tx.calls_of_thread(key)
        tx.insert_call(
            Call(
                id=key,
                run_id=key,
                thread_id=key,
                message_id=f"{key} 1",
                step=1,
                index=0,
                name="refund",
                kind=ToolKind.ACTION,
                arguments={"order": "o1", "cents": 500},
                status=CallStatus.PENDING,
                actor_id="ana",
                agent_name="desk",
                created_at=NOW,
                expires_at=NOW + timedelta(hours=1),
            )
        )
        tx.change_run(key, parked=True)
        tx.call(key)
        tx.run(key)
        tx.decide_call(key, expect=OPEN, now=NOW, status=CallStatus.APPROVED, decided_by="bo")
        for kind in (AuditKind.REQUESTED, AuditKind.APPROVED, AuditKind.EXECUTED):
            tx.append_audit(tenant="", at=NOW, kind=kind, run_id=key, call_id=key, actor_id="bo", data={"via": "web"})
        tx.change_call(key, expect=frozenset({CallStatus.APPROVED}), status=CallStatus.COMPLETED, output={"ok": True})
        tx.settle_run(key, status=RunStatus.COMPLETED, ended_at=NOW)
        tx.release_thread(key, key)
        tx.emit(key, [done()])

    return work


async def statements_of_a_turn(store: SqlStore) -> int:
    """How many statements `approval_turn` executes."""
    count = 0

    def work(tx: Tx) -> None:
        def counted(run: Callable[..., T]) -> Callable[..., T]:
            def count_and_run(*arguments: Any, **values: Any) -> T:
                nonlocal count
                count += 1
                return run(*arguments, **values)

            return count_and_run

        with mock.patch.multiple(Statement, run=counted(Statement.run), all=counted(Statement.all)):
            approval_turn("counted")(tx)

    await store.transact("counted", work)
    return count


async def cpu_of_a_turn(store: SqlStore) -> float:
    """Seconds of CPU that the statements of one turn take, on the thread that runs them."""
    spent = 0.0

    def measured(key: str) -> Callable[[Tx], None]:
        def work(tx: Tx) -> None:
            nonlocal spent
            started = time.thread_time()
            approval_turn(key)(tx)
            spent += time.thread_time() - started

        return work

    for number in range(TURNS):
        await store.transact("turn", measured(f"turn {number}"))
    return spent / TURNS


async def main(url: str, directory: Path) -> None:
    store = SqlStore(url)
    await store.open()
    statements = await statements_of_a_turn(store)
    cpu = await cpu_of_a_turn(store)
    print(
        f"approval turn: {statements} statements, {cpu * 1e3:.2f} ms CPU, {cpu / statements * 1e6:.0f} us a statement"
    )
    peer = peer_records_per_second(directory / "peer.db")
    print(f"peer, one commit a record:   {peer:8.0f} records/s")
    for in_flight in (1, 8, 64):
        rate = await records_per_second(store, in_flight, f"{in_flight}")
        print(f"store, {in_flight:2} in flight:          {rate:8.0f} records/s  ({rate / peer:.2f} x the peer)")
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        default = f"sqlite:///{temporary}/store.db"
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else default, Path(temporary)))
