"""Audit, ledger, idempotency keys and the outbox (`ports.store.Tx`)."""

from datetime import UTC, datetime

from sqlalchemy import Connection, bindparam, func, literal_column, select, update
from sqlalchemy.sql.elements import ColumnElement

from signoff.adapters.stores.sql.schema import audit, audit_heads, idempotency_keys, ledger, outbox, used_links
from signoff.adapters.stores.sql.statement import Entity, RowValues, Statement, Upsert, parameters
from signoff.domain.audit import AuditEntry, AuditHead, AuditKind, audit_hash
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Usage, UsageEntry
from signoff.ports.store import IdempotencyRecord, OutboxEntry, SpentTokens

AUDIT = Entity(audit, AuditEntry)
HEAD = Entity(audit_heads, AuditHead)
KEY = Entity(idempotency_keys, IdempotencyRecord)
OUTBOX = Entity(outbox, OutboxEntry)

# Counting up the head locks it until the commit: two appends of one tenant go one after the other.
_NEXT = Statement(
    lambda insert: (
        insert(audit_heads)
        .values(tenant=bindparam("tenant"), seq=1, hash="")
        .on_conflict_do_update(index_elements=["tenant"], set_={"seq": audit_heads.c.seq + 1})
        .returning(audit_heads.c.seq, audit_heads.c.hash)
    )
)
_SET_HEAD = Statement(
    update(audit_heads).where(audit_heads.c.tenant == bindparam("of_tenant")).values(parameters(audit_heads, ("hash",)))
)
_HEAD = Statement(HEAD.select().where(audit_heads.c.tenant == bindparam("of_tenant")))
_TENANTS_WITH_HEAD = Statement(select(audit_heads.c.tenant))
_TENANTS_WITH_ROWS = Statement(select(audit.c.tenant).distinct())
_CHAIN = (audit.c.tenant == bindparam("of_tenant"), audit.c.seq > bindparam("after_seq"))
_AUDIT = Statement(AUDIT.select().where(*_CHAIN).order_by(audit.c.seq).limit(bindparam("row_limit")))
_AUDIT_OF_CALL = Statement(
    AUDIT.select()
    .where(*_CHAIN, audit.c.call_id == bindparam("of_call"))
    .order_by(audit.c.seq)
    .limit(bindparam("row_limit"))
)

_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_ENTRY = (
    "id",
    "run_id",
    "thread_id",
    "actor_id",
    "tenant",
    "agent",
    "model",
    "step",
    "attempt",
    "cost_usd",
    "at",
    "day",
)
_ADD_USAGE = Statement(
    lambda insert: insert(ledger).values(parameters(ledger, _ENTRY + _USAGE)).on_conflict_do_nothing()
)
_USAGE_OF_RUN = Statement(
    select(*(ledger.c[name] for name in _ENTRY + _USAGE))
    .where(ledger.c.run_id == bindparam("of_run"))
    .order_by(ledger.c.at, ledger.c.step, ledger.c.attempt, ledger.c.id)
)
_ZERO: ColumnElement[int] = literal_column("0")
_SPENT = Statement(
    select(
        func.coalesce(func.sum(ledger.c.input_tokens + ledger.c.output_tokens), _ZERO),
        func.coalesce(func.sum(ledger.c.cost_usd), _ZERO, type_=ledger.c.cost_usd.type),
    ).where(
        ledger.c.tenant == bindparam("tenant"),
        ledger.c.actor_id == bindparam("actor_id"),
        ledger.c.day >= bindparam("from_day"),
        ledger.c.day <= bindparam("to_day"),
    )
)

_KEY = Statement(
    KEY.select().where(
        idempotency_keys.c.actor_id == bindparam("actor_id"),
        idempotency_keys.c.tenant == bindparam("tenant"),
        idempotency_keys.c.key == bindparam("key"),
    )
)


def _replacing(insert: Upsert) -> Upsert:
    names = [name for name in outbox.c.keys() if name != "id"]  # noqa: SIM118  # a column collection iterates columns
    return insert.on_conflict_do_update(index_elements=["id"], set_={name: insert.excluded[name] for name in names})


_PUT_OUTBOX = Statement(lambda insert: _replacing(insert(outbox).values(parameters(outbox, outbox.c.keys()))))
_DUE_OUTBOX = Statement(
    OUTBOX.select()
    .where(outbox.c.delivered_at.is_(None), outbox.c.due_at <= bindparam("now"))
    .order_by(outbox.c.due_at, outbox.c.id)
    .limit(bindparam("row_limit"))
)
_CHANGE_OUTBOX = Statement(
    update(outbox)
    .where(
        outbox.c.id == bindparam("of_entry"),
        outbox.c.delivered_at.is_(None),
        outbox.c.due_at == bindparam("expect_due_at", type_=outbox.c.due_at.type),
    )
    .values(parameters(outbox, outbox.c.keys()))
)
_USE_LINK = Statement(
    lambda insert: insert(used_links).values(parameters(used_links, used_links.c.keys())).on_conflict_do_nothing()
)
_USED_LINK = Statement(select(used_links.c.id).where(used_links.c.id == bindparam("of_link")))


class RecordRows:
    """The part of `Tx` that accounts for what happened and what is still to be told."""

    connection: Connection

    def append_audit(
        self,
        *,
        tenant: str,
        at: datetime,
        kind: AuditKind,
        run_id: str | None,
        call_id: str | None,
        actor_id: str | None,
        data: JsonObject,
    ) -> AuditEntry:
        head = _NEXT.one(self.connection, tenant=tenant)
        assert head is not None
        # The hash covers the instant as it reads back.
        at = at.astimezone(UTC)
        seq, previous = head
        entry = AuditEntry(
            tenant=tenant,
            seq=seq,
            at=at,
            kind=kind,
            run_id=run_id,
            call_id=call_id,
            actor_id=actor_id,
            data=data,
            previous=previous,
            hash=audit_hash(
                tenant=tenant,
                seq=seq,
                at=at,
                kind=kind,
                run_id=run_id,
                call_id=call_id,
                actor_id=actor_id,
                data=data,
                previous=previous,
            ),
        )
        AUDIT.insert(self.connection, entry)
        _SET_HEAD.run(self.connection, of_tenant=tenant, hash=entry.hash)
        return entry

    def audit(
        self, *, tenant: str, after_seq: int = 0, limit: int = 1000, call_id: str | None = None
    ) -> list[AuditEntry]:
        if call_id is None:
            rows = _AUDIT.all(self.connection, of_tenant=tenant, after_seq=after_seq, row_limit=limit)
        else:
            rows = _AUDIT_OF_CALL.all(
                self.connection, of_tenant=tenant, after_seq=after_seq, of_call=call_id, row_limit=limit
            )
        return [AUDIT.read(row) for row in rows]

    def audit_head(self, tenant: str) -> AuditHead | None:
        return HEAD.read_one(_HEAD.one(self.connection, of_tenant=tenant))

    def audit_tenants(self) -> list[str]:
        statements = (_TENANTS_WITH_ROWS, _TENANTS_WITH_HEAD)
        return sorted({row[0] for statement in statements for row in statement.all(self.connection)})

    def add_usage(self, entry: UsageEntry) -> None:
        values = {name: getattr(entry, name) for name in _ENTRY}
        counts = {name: getattr(entry.usage, name) for name in _USAGE}
        _ADD_USAGE.run(self.connection, **values, **counts)

    def usage_of_run(self, run_id: str) -> list[UsageEntry]:
        return [_usage_entry(row) for row in _USAGE_OF_RUN.all(self.connection, of_run=run_id)]

    def spent(self, *, actor_id: str, tenant: str, from_day: str, to_day: str) -> SpentTokens:
        row = _SPENT.one(self.connection, actor_id=actor_id, tenant=tenant, from_day=from_day, to_day=to_day)
        assert row is not None
        return SpentTokens(tokens=int(row[0]), cost_usd=row[1])

    def put_key(self, record: IdempotencyRecord) -> IdempotencyRecord | None:
        if KEY.insert(self.connection, record):
            return None
        return self.key(actor_id=record.actor_id, tenant=record.tenant, key=record.key)

    def key(self, *, actor_id: str, tenant: str, key: str) -> IdempotencyRecord | None:
        return KEY.read_one(_KEY.one(self.connection, actor_id=actor_id, tenant=tenant, key=key))

    def put_outbox(self, entry: OutboxEntry) -> None:
        _PUT_OUTBOX.run(self.connection, **OUTBOX.values(entry))

    def due_outbox(self, now: datetime, *, limit: int) -> list[OutboxEntry]:
        return [OUTBOX.read(row) for row in _DUE_OUTBOX.all(self.connection, now=now, row_limit=limit)]

    def change_outbox(self, entry: OutboxEntry, *, expect_due_at: datetime) -> bool:
        changed = _CHANGE_OUTBOX.run(
            self.connection, of_entry=entry.id, expect_due_at=expect_due_at, **OUTBOX.values(entry)
        )
        return changed == 1

    def use_link(self, link_id: str, *, call_id: str, at: datetime) -> bool:
        return _USE_LINK.run(self.connection, id=link_id, call_id=call_id, at=at) == 1

    def link_used(self, link_id: str) -> bool:
        return _USED_LINK.one(self.connection, of_link=link_id) is not None


def _usage_entry(row: RowValues) -> UsageEntry:
    entry = dict(zip(_ENTRY, row, strict=False))
    usage = Usage(**dict(zip(_USAGE, row[len(_ENTRY) :], strict=True)))
    return UsageEntry(**entry, usage=usage)
