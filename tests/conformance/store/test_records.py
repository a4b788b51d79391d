"""Audit, ledger, idempotency keys and the outbox."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta, timezone
from decimal import Decimal
from typing import Any

from signoff.domain.audit import AuditEntry, AuditKind, audit_hash
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.store import IdempotencyRecord, Store, Tx
from tests.conformance.store.rows import a_usage_entry, an_outbox_entry, at


def append(
    tenant: str = "acme", *, call_id: str = "call_1", data: JsonObject | None = None
) -> Callable[[Tx], AuditEntry]:
    return lambda tx: tx.append_audit(
        tenant=tenant,
        at=at(1),
        kind=AuditKind.APPROVED,
        run_id="run_1",
        call_id=call_id,
        actor_id=None,
        data=data or {"via": "web"},
    )


def assert_is_chain(entries: list[AuditEntry]) -> None:
    previous = ""
    for seq, entry in enumerate(entries, 1):
        assert entry.seq == seq
        assert entry.previous == previous
        assert entry.hash == audit_hash(
            tenant=entry.tenant,
            seq=entry.seq,
            at=entry.at,
            kind=entry.kind,
            run_id=entry.run_id,
            call_id=entry.call_id,
            actor_id=entry.actor_id,
            data=entry.data,
            previous=entry.previous,
        )
        previous = entry.hash


async def test_audit_is_a_chain_per_tenant(store: Store) -> None:
    first = await store.transact("first", append())
    other = await store.transact("other", append("other"))
    second = await store.transact("second", append(data={"nested": {"list": [1, 2.5, "é\x00"]}}))

    chain = await store.read(lambda tx: tx.audit(tenant="acme"))
    assert chain == [first, second]
    assert_is_chain(chain)
    assert_is_chain([other])


async def test_an_instant_of_another_zone_hashes_as_it_reads_back(store: Store) -> None:
    await store.transact(
        "append",
        lambda tx: tx.append_audit(
            tenant="acme",
            at=at(1).astimezone(timezone(timedelta(hours=2))),
            kind=AuditKind.EXPIRED,
            run_id=None,
            call_id=None,
            actor_id="ana",
            data={},
        ),
    )

    assert_is_chain(await store.read(lambda tx: tx.audit(tenant="acme")))


async def test_appends_at_once_never_fork_the_chain(store: Store) -> None:
    await asyncio.gather(*(store.transact("append", append(data={"n": n})) for n in range(40)))

    chain = await store.read(lambda tx: tx.audit(tenant="acme"))
    assert len(chain) == 40
    assert_is_chain(chain)


async def test_a_failed_append_leaves_no_gap(store: Store) -> None:
    def append_and_fail(tx: Tx) -> None:
        append()(tx)
        raise RuntimeError("the decision was refused")

    await store.transact("first", append())
    (failure,) = await asyncio.gather(store.transact("fails", append_and_fail), return_exceptions=True)
    await store.transact("second", append())

    assert isinstance(failure, RuntimeError)
    chain = await store.read(lambda tx: tx.audit(tenant="acme"))
    assert len(chain) == 2
    assert_is_chain(chain)


async def test_audit_is_paged_and_read_by_call(store: Store) -> None:
    for call_id in ("a", "b", "a", "b", "a"):
        await store.transact("append", append(call_id=call_id))

    async def seqs(after_seq: int = 0, limit: int = 1000, call_id: str | None = None) -> list[int]:
        entries = await store.read(
            lambda tx: tx.audit(tenant="acme", after_seq=after_seq, limit=limit, call_id=call_id)
        )
        return [entry.seq for entry in entries]

    assert await seqs() == [1, 2, 3, 4, 5]
    assert await seqs(after_seq=2, limit=2) == [3, 4]
    assert await seqs(call_id="a") == [1, 3, 5]
    assert await seqs(call_id="b", after_seq=2) == [4]
    assert await seqs(call_id="c") == []


async def test_ledger_keeps_the_first_row_of_an_id(store: Store) -> None:
    free = a_usage_entry("free", cost_usd=None, at=at(1))

    await store.transact("paid", lambda tx: tx.add_usage(a_usage_entry("paid")))
    await store.transact("free", lambda tx: tx.add_usage(free))
    await store.transact("retry", lambda tx: tx.add_usage(a_usage_entry("paid", model="other")))
    await store.transact("other", lambda tx: tx.add_usage(a_usage_entry("other", run_id="run_2")))

    assert await store.read(lambda tx: tx.usage_of_run("run_1")) == [free, a_usage_entry("paid")]


async def test_spending_adds_up_exactly_over_days(store: Store) -> None:
    def fill(tx: Tx) -> None:
        for day in range(1, 5):
            tx.add_usage(a_usage_entry(f"on {day}", day=date(2026, 1, day)))
        tx.add_usage(a_usage_entry("free", cost_usd=None, day=date(2026, 1, 2)))
        tx.add_usage(a_usage_entry("of bo", actor_id="bo", day=date(2026, 1, 2)))
        tx.add_usage(a_usage_entry("elsewhere", tenant="other", day=date(2026, 1, 2)))

    await store.transact("fill", fill)

    spent = await store.read(
        lambda tx: tx.spent(actor_id="ana", tenant="acme", from_day="2026-01-02", to_day="2026-01-03")
    )
    nothing = await store.read(
        lambda tx: tx.spent(actor_id="ana", tenant="acme", from_day="2026-02-01", to_day="2026-02-02")
    )

    assert spent.tokens == 360
    assert spent.cost_usd == Decimal("0.0000002469")
    assert (nothing.tokens, nothing.cost_usd) == (0, Decimal(0))


async def test_money_is_rounded_to_a_picodollar_alike(store: Store) -> None:
    third = Decimal(1) / Decimal(3)
    await store.transact("add", lambda tx: tx.add_usage(a_usage_entry("third", cost_usd=third)))

    (entry,) = await store.read(lambda tx: tx.usage_of_run("run_1"))

    assert entry.cost_usd == Decimal("0.333333333333")


async def test_an_idempotency_key_belongs_to_its_first_run(store: Store) -> None:
    def put(run_id: str, **changes: Any) -> Callable[[Tx], IdempotencyRecord | None]:
        return lambda tx: tx.put_key(replace(a_key(run_id), **changes))

    puts = await asyncio.gather(*(store.transact("put", put(f"run_{n}")) for n in range(10)))

    assert puts.count(None) == 1
    first = a_key(f"run_{puts.index(None)}")
    assert [earlier for earlier in puts if earlier is not None] == [first] * 9
    assert await store.read(lambda tx: tx.key(actor_id="ana", tenant="acme", key="k")) == first
    assert await store.read(lambda tx: tx.key(actor_id="bo", tenant="acme", key="k")) is None
    assert await store.transact("of bo", put("run_x", actor_id="bo")) is None
    assert await store.transact("elsewhere", put("run_x", tenant="other")) is None
    assert await store.transact("other key", put("run_x", key="k2")) is None


async def test_outbox_gives_what_is_due_longest_first(store: Store) -> None:
    due, later = an_outbox_entry("due", due_at=at(10)), an_outbox_entry("later", due_at=at(10.5))
    first = an_outbox_entry("first", due_at=at(5), attempts=3, last_error="refused")
    delivered = an_outbox_entry("delivered", delivered_at=at(6))

    def fill(tx: Tx) -> None:
        for entry in (due, later, first, delivered):
            tx.put_outbox(entry)

    await store.transact("fill", fill)
    assert await store.read(lambda tx: tx.due_outbox(at(10), limit=10)) == [first, due]
    assert await store.read(lambda tx: tx.due_outbox(at(10), limit=1)) == [first]

    await store.transact("delivered", lambda tx: tx.put_outbox(replace(first, delivered_at=at(10))))
    assert await store.read(lambda tx: tx.due_outbox(at(10), limit=10)) == [due]


def a_key(run_id: str) -> IdempotencyRecord:
    return IdempotencyRecord(
        actor_id="ana", tenant="acme", key="k", body_digest="d", run_id=run_id, thread_id="thread_1", at=at(0)
    )
