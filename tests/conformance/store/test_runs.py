"""Runs: one conditional write each, and what goes when a run is deleted."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from signoff.domain.call import CallStatus
from signoff.domain.run import RunStatus
from signoff.ports.store import IdempotencyRecord, Store, Tx
from tests.conformance.store.rows import a_call, a_run, a_thread, a_vote, an_outbox_entry, at, insert


def settle(run_id: str, status: RunStatus) -> Callable[[Tx], bool]:
    return lambda tx: tx.settle_run(run_id, status=status, ended_at=at(9), error_code="run_failed", error="boom")


async def test_run_comes_back_as_it_was(store: Store) -> None:
    bare = replace(
        a_run("run_2"),
        parent_id=None,
        parent_call_id=None,
        owner=None,
        lease_until=None,
        actor_roles=(),
        attempt_seq=None,
    )
    ended = a_run("run_3", status=RunStatus.FAILED, error_code="run_failed", error="boom", ended_at=at(9))

    await insert(store, a_run(), bare, ended)

    assert await store.read(lambda tx: tx.run("run_1")) == a_run()
    assert await store.read(lambda tx: tx.run("run_2")) == bare
    assert await store.read(lambda tx: tx.run("run_3")) == ended
    assert await store.read(lambda tx: tx.run("run_4")) is None
    with pytest.raises(ValueError, match="run_1"):
        await insert(store, a_run())


async def test_changes_write_what_is_named(store: Store) -> None:
    await insert(store, a_run())

    await store.transact("change", lambda tx: tx.change_run("run_1", parked=False, owner=None, attempt_seq=12))
    await store.transact("input", lambda tx: tx.change_run("run_1", input={"a": [None]}, lease_until=at(99)))
    await store.transact("nothing", lambda tx: tx.change_run("run_1"))

    run = await store.read(lambda tx: tx.run("run_1"))
    assert run == replace(a_run(), parked=False, owner=None, attempt_seq=12, input={"a": [None]}, lease_until=at(99))


async def test_of_twenty_ends_the_first_stands(store: Store) -> None:
    await insert(store, a_run())
    ends = [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.FAILED] * 5

    settled = await asyncio.gather(*(store.transact("end", settle("run_1", status)) for status in ends))

    assert sum(settled) == 1
    run = await store.read(lambda tx: tx.run("run_1"))
    assert run == replace(
        a_run(),
        status=ends[settled.index(True)],
        ended_at=at(9),
        error_code="run_failed",
        error="boom",
        parked=False,
        owner=None,
        lease_until=None,
    )


async def test_only_a_failed_run_is_opened_again(store: Store) -> None:
    await insert(store, a_run("failed"), a_run("cancelled"), a_run("running"))
    await store.transact("fail", settle("failed", RunStatus.FAILED))
    await store.transact("cancel", settle("cancelled", RunStatus.CANCELLED))

    reopened = await store.transact("retry", lambda tx: tx.reopen_run("failed"))
    refused = await store.transact(
        "retry", lambda tx: [tx.reopen_run(id_) for id_ in ("cancelled", "running", "unknown", "failed")]
    )

    assert reopened
    assert refused == [False, False, False, False]
    run = await store.read(lambda tx: tx.run("failed"))
    assert run is not None
    assert (run.status, run.ended_at, run.error_code, run.error) == (RunStatus.RUNNING, None, None, None)


async def test_totals_add_up_exactly_and_the_attempt_is_over(store: Store) -> None:
    await insert(store, replace(a_run(), steps=0, input_tokens=0, output_tokens=0, cost_usd=Decimal(0)))

    def add(tx: Tx) -> None:
        tx.add_to_run("run_1", steps=1, input_tokens=10, output_tokens=3, cost_usd=Decimal("0.0000001"))

    await asyncio.gather(*(store.transact("add", add) for _ in range(30)))

    run = await store.read(lambda tx: tx.run("run_1"))
    assert run is not None
    assert (run.steps, run.input_tokens, run.output_tokens) == (30, 300, 90)
    assert run.cost_usd == Decimal("0.000003")
    assert run.attempt_seq is None


async def test_children_come_oldest_first(store: Store) -> None:
    await insert(
        store,
        a_run("b", parent_id="p", created_at=at(1)),
        a_run("a", parent_id="p", created_at=at(2)),
        a_run("c", parent_id="q"),
    )

    assert [run.id for run in await store.read(lambda tx: tx.children_of("p"))] == ["b", "a"]


async def test_runs_are_filtered_and_paged_newest_first(store: Store) -> None:
    await insert(
        store,
        a_run("run_1"),
        a_run("run_2", tenant="other"),
        a_run("run_3", parked=False),
        a_run("run_4", durable=False),
        a_run("run_5", agent="other"),
        a_run("run_6", fingerprint="f2"),
        a_run("run_7", lease_until=at(10)),
        a_run("run_8", lease_until=None),
        a_run("run_9", status=RunStatus.COMPLETED, ended_at=at(3)),
    )

    async def ids(**filters: object) -> str:
        runs = await store.read(lambda tx: tx.runs(**filters))  # type: ignore[arg-type]
        return "".join(run.id[-1] for run in runs)

    assert await ids() == "987654321"
    assert await ids(tenant="other") == "2"
    assert await ids(status=RunStatus.RUNNING) == "87654321"
    assert await ids(parked=False) == "3"
    assert await ids(durable=False) == "4"
    assert await ids(agent="other") == "5"
    assert await ids(fingerprint="f2") == "6"
    assert await ids(lease_before=at(10)) == ""
    assert await ids(lease_before=at(10.001)) == "7"
    assert await ids(ended_before=at(3)) == ""
    assert await ids(ended_before=at(3.001)) == "9"
    assert await ids(limit=3) == "987"
    assert await ids(limit=3, before_id="run_7") == "654"
    assert await ids(tenant="acme", status=RunStatus.RUNNING, parked=True, durable=True, before_id="run_5") == "1"


async def test_ids_sort_by_code_point_whatever_the_locale(store: Store) -> None:
    """A locale would put "b" before "C", and pages by id would lose runs."""
    await insert(store, *(a_run(id_) for id_ in ("b", "C", "a-1", "a1", "A", "é", "_")))

    runs = await store.read(lambda tx: tx.runs())

    assert [run.id for run in runs] == sorted(("b", "C", "a-1", "a1", "A", "é", "_"), reverse=True)


async def test_leases_are_renewed_for_the_owners_active_runs(store: Store) -> None:
    await insert(store, a_run("mine"), a_run("other", owner="process-2"), a_run("ended", status=RunStatus.COMPLETED))

    await store.transact("renew", lambda tx: tx.renew_leases("process-1", at(500)))

    leases = {run.id: run.lease_until for run in await store.read(lambda tx: tx.runs())}
    assert leases == {"mine": at(500), "other": at(30), "ended": at(30)}


async def test_a_deleted_run_takes_frames_votes_outbox_and_keys_and_leaves_the_rest(store: Store) -> None:
    def fill(tx: Tx) -> None:
        for run_id in ("run_1", "run_2"):
            tx.insert_run(a_run(run_id))
            tx.insert_call(a_call(f"call of {run_id}", run_id=run_id))
            tx.add_vote(a_vote(f"call of {run_id}"))
            tx.put_outbox(an_outbox_entry(f"entry of {run_id}", call_id=f"call of {run_id}"))
            tx.put_key(
                IdempotencyRecord(
                    actor_id="ana",
                    tenant="acme",
                    key=f"key of {run_id}",
                    body_digest="d",
                    run_id=run_id,
                    thread_id="thread_1",
                    at=at(0),
                )
            )
            tx.emit(run_id, [{"kind": "text", "text": "a"}, {"kind": "text", "text": "b"}])
            tx.withdraw(run_id, from_seq=2)

    def left(tx: Tx) -> list[bool]:
        return [
            tx.run("run_1") is not None,
            bool(tx.frames("run_1", after=0, limit=9)),
            tx.emit("run_1", []) > 0,
            bool(tx.votes_of("call of run_1")),
            bool([entry for entry in tx.due_outbox(at(99), limit=9) if entry.call_id == "call of run_1"]),
            tx.key(actor_id="ana", tenant="acme", key="key of run_1") is not None,
        ]

    await insert(store, a_thread())
    await store.transact("fill", fill)
    await store.transact("active", lambda tx: tx.delete_run("run_1"))
    assert await store.read(left) == [True] * 6

    await store.transact("end", settle("run_1", RunStatus.COMPLETED))
    await store.transact("delete", lambda tx: tx.delete_run("run_1"))

    assert await store.read(left) == [False] * 6
    call = await store.read(lambda tx: tx.call("call of run_1"))
    assert call is not None
    assert call.status is CallStatus.PENDING
    assert await store.read(lambda tx: tx.run("run_2")) == a_run("run_2")
    assert len(await store.read(lambda tx: tx.frames("run_2", after=0, limit=9))) == 1
    assert len(await store.read(lambda tx: tx.votes_of("call of run_2"))) == 1
    assert await store.read(lambda tx: tx.frames("run_1", after=2, limit=9)) == []
