"""Where a tenant's audit chain ends, and who has one."""

from signoff.domain.audit import AuditHead, AuditKind
from signoff.ports.store import Store
from tests.conformance.store.rows import at


async def test_the_head_is_the_last_row_of_each_tenant(store: Store) -> None:
    assert await store.read(lambda tx: tx.audit_tenants()) == []
    assert await store.read(lambda tx: tx.audit_head("acme")) is None

    for tenant in ("zeta", "", "acme", "acme"):
        last = await store.transact(
            "append",
            lambda tx: tx.append_audit(
                tenant=tenant,  # noqa: B023  # run before the next turn
                at=at(0),
                kind=AuditKind.EXPIRED,
                run_id=None,
                call_id=None,
                actor_id=None,
                data={},
            ),
        )

    assert await store.read(lambda tx: tx.audit_tenants()) == ["", "acme", "zeta"]
    assert await store.read(lambda tx: tx.audit_head("acme")) == AuditHead(tenant="acme", seq=2, hash=last.hash)
