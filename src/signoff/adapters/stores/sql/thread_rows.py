"""Threads and messages (`ports.store.Tx`)."""

from dataclasses import replace
from functools import cache
from typing import Unpack

from sqlalchemy import Connection, bindparam, delete, select, update

from signoff.adapters.stores.sql.schema import calls, messages, threads, votes
from signoff.adapters.stores.sql.statement import Entity, Statement, parameters
from signoff.domain.thread import Message, Role, Thread
from signoff.ports.store import ThreadChanges

THREAD = Entity(threads, Thread)
MESSAGE = Entity(messages, Message)

_THREAD = Statement(THREAD.select().where(threads.c.id == bindparam("thread_id")))
_THREADS_OF = Statement(
    THREAD.select()
    .where(
        threads.c.tenant == bindparam("tenant"),
        threads.c.actor_id == bindparam("actor_id"),
        threads.c.deleted_at.is_(None),
        ~threads.c.transient,
    )
    .order_by(threads.c.updated_at.desc(), threads.c.id.desc())
)
_CLAIM = Statement(
    update(threads)
    .where(threads.c.id == bindparam("thread_id"), threads.c.active_run_id.is_(None))
    .values(active_run_id=bindparam("run_id"))
)
_RELEASE = Statement(
    update(threads)
    .where(threads.c.id == bindparam("thread_id"), threads.c.active_run_id == bindparam("run_id"))
    .values(active_run_id=None)
)
_MESSAGE = Statement(MESSAGE.select().where(messages.c.id == bindparam("message_id")))
_FROM = (messages.c.thread_id == bindparam("thread_id"), messages.c.seq >= bindparam("from_seq"))
_MESSAGES = Statement(MESSAGE.select().where(*_FROM).order_by(messages.c.seq))
_LAST_MESSAGES = Statement(MESSAGE.select().where(*_FROM).order_by(messages.c.seq.desc()).limit(bindparam("last")))
_CALLS_FROM = select(calls.c.id).join(messages, messages.c.id == calls.c.message_id).where(*_FROM)
_DELETE_VOTES = Statement(delete(votes).where(votes.c.call_id.in_(_CALLS_FROM)))
_DELETE_CALLS = Statement(delete(calls).where(calls.c.message_id.in_(select(messages.c.id).where(*_FROM))))
_DELETE_MESSAGES = Statement(delete(messages).where(*_FROM))
_ASSISTANTS = Statement(
    select(messages.c.id)
    .where(messages.c.thread_id == bindparam("thread_id"), messages.c.role == Role.ASSISTANT)
    .order_by(messages.c.seq)
)
_MOVE_MESSAGE = Statement(
    update(messages).where(messages.c.id == bindparam("message_id")).values(parameters(messages, ("thread_id", "seq")))
)
_MOVE_CALLS = Statement(
    update(calls).where(calls.c.message_id == bindparam("of_message")).values(parameters(calls, ("thread_id",)))
)


@cache
def _number(names: tuple[str, ...] = ()) -> Statement:
    """Take the next numbers of a thread's messages, and change what else changes with them."""
    return Statement(
        update(threads)
        .where(threads.c.id == bindparam("thread_id"))
        .values({**parameters(threads, names), "last_seq": threads.c.last_seq + bindparam("count")})
        .returning(threads.c.last_seq)
    )


@cache
def _change_thread(names: tuple[str, ...]) -> Statement:
    return Statement(update(threads).where(threads.c.id == bindparam("thread_id")).values(parameters(threads, names)))


class ThreadRows:
    """The part of `Tx` that keeps conversations."""

    connection: Connection

    def insert_thread(self, thread: Thread) -> None:
        if not THREAD.insert(self.connection, thread):
            raise ValueError(f"there is a thread {thread.id!r} already")

    def thread(self, thread_id: str) -> Thread | None:
        return THREAD.read_one(_THREAD.one(self.connection, thread_id=thread_id))

    def threads_of(self, *, actor_id: str, tenant: str) -> list[Thread]:
        rows = _THREADS_OF.all(self.connection, actor_id=actor_id, tenant=tenant)
        return [THREAD.read(row) for row in rows]

    def change_thread(self, thread_id: str, **changes: Unpack[ThreadChanges]) -> None:
        if changes:
            _change_thread(tuple(sorted(changes))).run(self.connection, thread_id=thread_id, **changes)

    def claim_thread(self, thread_id: str, run_id: str) -> bool:
        return _CLAIM.run(self.connection, thread_id=thread_id, run_id=run_id) == 1

    def release_thread(self, thread_id: str, run_id: str) -> None:
        _RELEASE.run(self.connection, thread_id=thread_id, run_id=run_id)

    def insert_message(self, message: Message, **of_thread: Unpack[ThreadChanges]) -> Message:
        number = _number(tuple(sorted(of_thread)))
        row = number.one(self.connection, thread_id=message.thread_id, count=1, **of_thread)
        if row is None:
            raise ValueError(f"there is no thread {message.thread_id!r}")
        stored = replace(message, seq=row[0])
        if not MESSAGE.insert(self.connection, stored):
            raise ValueError(f"there is a message {message.id!r} already")
        return stored

    def message(self, message_id: str) -> Message | None:
        return MESSAGE.read_one(_MESSAGE.one(self.connection, message_id=message_id))

    def messages_of(self, thread_id: str, *, from_seq: int = 0, last: int | None = None) -> list[Message]:
        if last is None:
            rows = _MESSAGES.all(self.connection, thread_id=thread_id, from_seq=from_seq)
        else:
            rows = _LAST_MESSAGES.all(self.connection, thread_id=thread_id, from_seq=from_seq, last=last)[::-1]
        return [MESSAGE.read(row) for row in rows]

    def delete_messages(self, thread_id: str, *, from_seq: int) -> None:
        for statement in (_DELETE_VOTES, _DELETE_CALLS, _DELETE_MESSAGES):
            statement.run(self.connection, thread_id=thread_id, from_seq=from_seq)

    def adopt_messages(self, *, from_thread: str, to_thread: str) -> None:
        ids = [str(row[0]) for row in _ASSISTANTS.all(self.connection, thread_id=from_thread)]
        if not ids:
            return
        row = _number().one(self.connection, thread_id=to_thread, count=len(ids))
        if row is None:
            raise ValueError(f"there is no thread {to_thread!r}")
        for seq, message_id in enumerate(ids, row[0] - len(ids) + 1):
            _MOVE_MESSAGE.run(self.connection, message_id=message_id, thread_id=to_thread, seq=seq)
            _MOVE_CALLS.run(self.connection, of_message=message_id, thread_id=to_thread)
