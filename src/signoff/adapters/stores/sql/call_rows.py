"""Calls, cards, votes and remembered approvals (`ports.store.Tx`)."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Unpack

from sqlalchemy import Connection, and_, bindparam, func, literal, or_, select, tuple_, update
from sqlalchemy.sql.elements import ColumnElement

from signoff.adapters.stores.cursor import NO_DEADLINE, card_cursor, read_card_cursor
from signoff.adapters.stores.sql.schema import OPEN_CALLS, calls, messages, remembered, runs, votes
from signoff.adapters.stores.sql.statement import Entity, Statement, Upsert, parameters
from signoff.domain.approval import Remembered, Vote
from signoff.domain.call import Call, CallStatus
from signoff.domain.run import RunStatus
from signoff.ports.store import CallChanges, CardFilter, CardOrder, CardPage

CALL = Entity(calls, Call)
VOTE = Entity(votes, Vote)
REMEMBERED = Entity(remembered, Remembered)

_THIS = calls.c.id == bindparam("call_id")

_CALL = Statement(CALL.select().where(_THIS))
_CALLS_OF_THREAD = Statement(
    CALL.select()
    .join(messages, messages.c.id == calls.c.message_id)
    .where(messages.c.thread_id == bindparam("of_thread"), messages.c.seq >= bindparam("from_seq"))
    .order_by(messages.c.seq, calls.c.step, calls.c.index, calls.c.id)
)
_CALLS_OF_RUN = Statement(
    CALL.select().where(calls.c.run_id == bindparam("of_run")).order_by(calls.c.step, calls.c.index, calls.c.id)
)
_VOTES = Statement(VOTE.select().where(votes.c.call_id == bindparam("of_call")).order_by(votes.c.at, votes.c.actor_id))
_REMEMBERED = Statement(
    REMEMBERED.select().where(
        remembered.c.thread_id == bindparam("of_thread"), remembered.c.tool == bindparam("of_tool")
    )
)
_REMEMBER = Statement(
    lambda insert: _replacing(
        insert(remembered).values(parameters(remembered, remembered.c.keys())),
    )
)


def _replacing(insert: Upsert) -> Upsert:
    return insert.on_conflict_do_update(
        index_elements=["thread_id", "tool"],
        set_={name: insert.excluded[name] for name in ("by", "approver", "at")},
    )


_FILTERS: dict[str, ColumnElement[bool]] = {
    "actor_id": calls.c.actor_id == bindparam("actor_id"),
    "tool": calls.c.name == bindparam("tool"),
    "agent": calls.c.agent_name == bindparam("agent"),
    "requested_before": calls.c.created_at < bindparam("requested_before"),
    "deadline_before": calls.c.expires_at < bindparam("deadline_before"),
    "open_at": or_(calls.c.expires_at.is_(None), calls.c.expires_at > bindparam("open_at")),
}
_ORDERS: dict[CardOrder, ColumnElement[datetime]] = {
    CardOrder.OLDEST: calls.c.created_at,
    CardOrder.DEADLINE: func.coalesce(calls.c.expires_at, literal(NO_DEADLINE, calls.c.expires_at.type)),
}


@cache
def _change_call(names: tuple[str, ...], expected: int, checks_deadline: bool) -> Statement:
    conditions = [
        _THIS,
        calls.c.status.in_([bindparam(f"expect_{n}", type_=calls.c.status.type) for n in range(expected)]),
    ]
    if checks_deadline:
        conditions.append(or_(calls.c.expires_at.is_(None), calls.c.expires_at > bindparam("at_instant")))
    changed = update(calls).where(*conditions)
    # Without changes it still says whether the status is the expected one, and holds the row.
    return Statement(changed.values(parameters(calls, names)) if names else changed.values(id=calls.c.id))


def _open(filters: tuple[str, ...]) -> ColumnElement[bool]:
    return and_(
        OPEN_CALLS,
        calls.c.tenant == bindparam("tenant"),
        runs.c.status == RunStatus.RUNNING,
        *(_FILTERS[name] for name in filters),
    )


@cache
def _open_page(filters: tuple[str, ...], order: CardOrder, with_cursor: bool) -> Statement:
    page = CALL.select().join(runs, runs.c.id == calls.c.run_id).where(_open(filters))
    at = _ORDERS[order]
    if with_cursor:
        after_at = bindparam("after_at", type_=calls.c.created_at.type)
        page = page.where(tuple_(at, calls.c.id) > tuple_(after_at, bindparam("after_id", type_=calls.c.id.type)))
    return Statement(page.order_by(at, calls.c.id).limit(bindparam("row_limit")))


@cache
def _open_total(filters: tuple[str, ...]) -> Statement:
    return Statement(
        select(func.count()).select_from(calls).join(runs, runs.c.id == calls.c.run_id).where(_open(filters))
    )


class CallRows:
    """The part of `Tx` that keeps calls and what people said about them."""

    connection: Connection

    def insert_call(self, call: Call) -> None:
        if not CALL.insert(self.connection, call):
            raise ValueError(f"there is a call {call.id!r} already")

    def call(self, call_id: str) -> Call | None:
        return CALL.read_one(_CALL.one(self.connection, call_id=call_id))

    def calls_of_thread(self, thread_id: str, *, from_seq: int = 0) -> list[Call]:
        rows = _CALLS_OF_THREAD.all(self.connection, of_thread=thread_id, from_seq=from_seq)
        return [CALL.read(row) for row in rows]

    def calls_of_run(self, run_id: str) -> list[Call]:
        return [CALL.read(row) for row in _CALLS_OF_RUN.all(self.connection, of_run=run_id)]

    def change_call(self, call_id: str, *, expect: frozenset[CallStatus], **changes: Unpack[CallChanges]) -> bool:
        return self._change_call(call_id, expect, None, changes)

    def decide_call(
        self, call_id: str, *, expect: frozenset[CallStatus], now: datetime, **changes: Unpack[CallChanges]
    ) -> bool:
        return self._change_call(call_id, expect, now, changes)

    def _change_call(
        self, call_id: str, expect: frozenset[CallStatus], now: datetime | None, changes: Mapping[str, object]
    ) -> bool:
        if not expect:
            return False
        statement = _change_call(tuple(sorted(changes)), len(expect), now is not None)
        expected = {f"expect_{number}": status for number, status in enumerate(expect)}
        return statement.run(self.connection, call_id=call_id, at_instant=now, **expected, **changes) == 1

    def open_cards(
        self, filter_: CardFilter, *, cursor: str | None, limit: int, order: CardOrder = CardOrder.OLDEST
    ) -> CardPage:
        names_of_place = ("after_at", "after_id")
        after = {} if cursor is None else dict(zip(names_of_place, read_card_cursor(cursor, order), strict=True))
        filters = {name: value for name in _FILTERS if (value := getattr(filter_, name)) is not None}
        names = tuple(filters)
        total = _open_total(names).one(self.connection, tenant=filter_.tenant, **filters)
        # One row more than asked tells whether there is a next page.
        rows = _open_page(names, order, bool(after)).all(
            self.connection, tenant=filter_.tenant, row_limit=limit + 1, **filters, **after
        )
        cards = [CALL.read(row) for row in rows[:limit]]
        return CardPage(
            cards=cards,
            total=total[0] if total else 0,
            next_cursor=card_cursor(cards[-1], order) if len(rows) > limit and cards else None,
        )

    def add_vote(self, vote: Vote) -> bool:
        return VOTE.insert(self.connection, vote)

    def votes_of(self, call_id: str) -> list[Vote]:
        return [VOTE.read(row) for row in _VOTES.all(self.connection, of_call=call_id)]

    def remember(self, remembered: Remembered) -> None:
        _REMEMBER.run(self.connection, **REMEMBERED.values(remembered))

    def remembered(self, *, thread_id: str, tool: str) -> Remembered | None:
        return REMEMBERED.read_one(_REMEMBERED.one(self.connection, of_thread=thread_id, of_tool=tool))
