"""Runs (`ports.store.Tx`)."""

from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Unpack

from sqlalchemy import Connection, bindparam, delete, select, update

from signoff.adapters.stores.sql.schema import (
    calls,
    frames,
    idempotency_keys,
    outbox,
    runs,
    streams,
    used_links,
    votes,
    withdrawals,
)
from signoff.adapters.stores.sql.statement import Entity, Statement, parameters
from signoff.domain.run import Run, RunStatus
from signoff.ports.store import RunChanges

RUN = Entity(runs, Run)

_THIS = runs.c.id == bindparam("run_id")
_ACTIVE = runs.c.status == RunStatus.RUNNING

_RUN = Statement(RUN.select().where(_THIS))
_RUN_LOCKED = Statement(RUN.select().where(_THIS).with_for_update(key_share=True))
_SETTLE = Statement(
    update(runs)
    .where(_THIS, _ACTIVE)
    .values(
        parked=False,
        owner=None,
        lease_until=None,
        **parameters(runs, ("status", "ended_at", "error_code", "error")),
    )
)
_REOPEN = Statement(
    update(runs)
    .where(_THIS, runs.c.status == RunStatus.FAILED)
    .values(status=RunStatus.RUNNING, ended_at=None, error_code=None, error=None)
)
_ADD = Statement(
    update(runs)
    .where(_THIS)
    .values(
        {
            name: runs.c[name] + bindparam(f"more_{name}", type_=runs.c[name].type)
            for name in ("steps", "input_tokens", "output_tokens", "cost_usd")
        }
    )
    .values(attempt_seq=None)
)
_CHILDREN = Statement(
    RUN.select().where(runs.c.parent_id == bindparam("run_id")).order_by(runs.c.created_at, runs.c.id)
)
_RENEW = Statement(
    update(runs).where(runs.c.owner == bindparam("of_owner"), _ACTIVE).values(parameters(runs, ("lease_until",)))
)
_FILTERS = {
    "tenant": runs.c.tenant == bindparam("tenant"),
    "status": runs.c.status == bindparam("status"),
    "parked": runs.c.parked == bindparam("parked"),
    "durable": runs.c.durable == bindparam("durable"),
    "agent": runs.c.agent == bindparam("agent"),
    "fingerprint": runs.c.fingerprint == bindparam("fingerprint"),
    "lease_before": runs.c.lease_until < bindparam("lease_before"),
    "ended_before": runs.c.ended_at < bindparam("ended_before"),
    "before_id": runs.c.id < bindparam("before_id"),
}

_DELETE = Statement(delete(runs).where(_THIS, runs.c.status != RunStatus.RUNNING))
_CALLS_OF_RUN = select(calls.c.id).where(calls.c.run_id == bindparam("run_id"))
_DELETE_WITH_RUN = tuple(
    Statement(clause)
    for clause in (
        delete(frames).where(frames.c.stream_id == bindparam("run_id")),
        delete(withdrawals).where(withdrawals.c.stream_id == bindparam("run_id")),
        delete(streams).where(streams.c.id == bindparam("run_id")),
        delete(votes).where(votes.c.call_id.in_(_CALLS_OF_RUN)),
        delete(outbox).where(outbox.c.call_id.in_(_CALLS_OF_RUN)),
        delete(used_links).where(used_links.c.call_id.in_(_CALLS_OF_RUN)),
        delete(idempotency_keys).where(idempotency_keys.c.run_id == bindparam("run_id")),
    )
)


@cache
def _change_run(names: tuple[str, ...]) -> Statement:
    return Statement(update(runs).where(_THIS).values(parameters(runs, names)))


@cache
def _runs(filters: tuple[str, ...]) -> Statement:
    return Statement(
        RUN.select()
        .where(*(_FILTERS[name] for name in filters))
        .order_by(runs.c.id.desc())
        .limit(bindparam("row_limit"))
    )


class RunRows:
    """The part of `Tx` that keeps runs."""

    connection: Connection

    def insert_run(self, run: Run) -> None:
        if not RUN.insert(self.connection, run):
            raise ValueError(f"there is a run {run.id!r} already")

    def run(self, run_id: str, *, lock: bool = False) -> Run | None:
        return RUN.read_one((_RUN_LOCKED if lock else _RUN).one(self.connection, run_id=run_id))

    def change_run(self, run_id: str, **changes: Unpack[RunChanges]) -> None:
        if changes:
            _change_run(tuple(sorted(changes))).run(self.connection, run_id=run_id, **changes)

    def settle_run(
        self,
        run_id: str,
        *,
        status: RunStatus,
        ended_at: datetime,
        error_code: str | None = None,
        error: str | None = None,
    ) -> bool:
        touched = _SETTLE.run(
            self.connection, run_id=run_id, status=status, ended_at=ended_at, error_code=error_code, error=error
        )
        return touched == 1

    def reopen_run(self, run_id: str) -> bool:
        return _REOPEN.run(self.connection, run_id=run_id) == 1

    def add_to_run(self, run_id: str, *, steps: int, input_tokens: int, output_tokens: int, cost_usd: Decimal) -> None:
        _ADD.run(
            self.connection,
            run_id=run_id,
            more_steps=steps,
            more_input_tokens=input_tokens,
            more_output_tokens=output_tokens,
            more_cost_usd=cost_usd,
        )

    def children_of(self, run_id: str) -> list[Run]:
        return [RUN.read(row) for row in _CHILDREN.all(self.connection, run_id=run_id)]

    def runs(
        self,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        parked: bool | None = None,
        durable: bool | None = None,
        agent: str | None = None,
        fingerprint: str | None = None,
        lease_before: datetime | None = None,
        ended_before: datetime | None = None,
        limit: int = 100,
        before_id: str | None = None,
    ) -> list[Run]:
        asked: dict[str, object] = {
            "tenant": tenant,
            "status": status,
            "parked": parked,
            "durable": durable,
            "agent": agent,
            "fingerprint": fingerprint,
            "lease_before": lease_before,
            "ended_before": ended_before,
            "before_id": before_id,
        }
        filters = {name: value for name, value in asked.items() if value is not None}
        rows = _runs(tuple(filters)).all(self.connection, row_limit=limit, **filters)
        return [RUN.read(row) for row in rows]

    def renew_leases(self, owner: str, until: datetime) -> None:
        _RENEW.run(self.connection, of_owner=owner, lease_until=until)

    def delete_run(self, run_id: str) -> None:
        if _DELETE.run(self.connection, run_id=run_id) == 1:
            for statement in _DELETE_WITH_RUN:
                statement.run(self.connection, run_id=run_id)
