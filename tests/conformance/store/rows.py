"""Rows with every field set to something, so that a column that is forgotten shows."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from signoff.domain.approval import Vote
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.run import Run, Usage, UsageEntry
from signoff.domain.thread import Message, Role, Thread
from signoff.ports.store import OutboxEntry, Store, Tx

T0 = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """`seconds` after the tests' beginning."""
    return T0 + timedelta(seconds=seconds)


def a_thread(id_: str = "thread_1", **changes: Any) -> Thread:
    values: dict[str, Any] = {
        "actor_id": "ana",
        "tenant": "acme",
        "title": "Refunds",
        "created_at": at(0),
        "updated_at": at(1),
        "default_agent": "desk",
        "model": "openai:gpt-5-mini",
        "persona": "formal",
        "last_message_preview": "I'd like my money back",
    }
    return Thread(id=id_, **values | changes)


def a_message(id_: str, *, thread_id: str = "thread_1", **changes: Any) -> Message:
    values: dict[str, Any] = {
        "role": Role.ASSISTANT,
        "content": "Let me look.",
        "run_id": "run_1",
        "step": 0,
        "agent_name": "desk",
        "reasoning": "The order comes first.",
        "usage": {"inputTokens": 10, "costUsd": 0.001},
        "metadata": {"pageContext": {"path": "/orders"}},
        "created_at": at(2),
    }
    return Message(id=id_, thread_id=thread_id, **values | changes)


def a_run(id_: str = "run_1", **changes: Any) -> Run:
    values: dict[str, Any] = {
        "thread_id": "thread_1",
        "actor_id": "ana",
        "actor_roles": ("support", "admin"),
        "tenant": "acme",
        "agent": "desk",
        "stream_id": id_,
        "durable": True,
        "parked": True,
        "parent_id": "run_0",
        "parent_call_id": "call_0",
        "detached": True,
        "depth": 1,
        "input": {"message": "hello", "list": [1, 2.5, None, True]},
        "fingerprint": "f1",
        "steps": 2,
        "input_tokens": 100,
        "output_tokens": 20,
        "cost_usd": Decimal("0.0123"),
        "owner": "process-1",
        "lease_until": at(30),
        "attempt_seq": 7,
        "created_at": at(0),
    }
    return Run(id=id_, **values | changes)


def a_call(id_: str, *, run_id: str = "run_1", message_id: str = "message_1", **changes: Any) -> Call:
    values: dict[str, Any] = {
        "thread_id": "thread_1",
        "step": 0,
        "index": 0,
        "provider_id": "call_1",
        "name": "refund",
        "kind": ToolKind.ACTION,
        "arguments": {"order_id": "o1", "cents": 500},
        "status": CallStatus.PENDING,
        "actor_id": "ana",
        "tenant": "acme",
        "agent_name": "desk",
        "created_at": at(3),
    }
    return Call(id=id_, run_id=run_id, message_id=message_id, **values | changes)


def a_full_call(id_: str) -> Call:
    return a_call(
        id_,
        step=3,
        index=2,
        edited_arguments={"order_id": "o1", "cents": 400},
        parent_call_id="call_0",
        child_run_id="run_2",
        started_at=at(4),
        ended_at=at(5),
        output={"receipt": ["r1", None]},
        error="too late",
        approver="finance",
        quorum=2,
        may_requester=False,
        request_reason="more than 100 €",
        confirmation={"title": "Refund", "verb": "Pay"},
        target={"kind": "order", "id": "o1"},
        digest="d1",
        schema_version="s1",
        expires_at=at(60),
        widened=("lead", "cfo"),
        request={"questions": []},
        in_doubt={"startedAt": "2026-01-01T00:00:00Z", "attempt": 1},
        decided_by="bo",
        decided_via="slack",
        decided_at=at(6),
        decision_reason="fine",
        remember=True,
    )


def a_usage_entry(id_: str, *, day: date = date(2026, 1, 1), **changes: Any) -> UsageEntry:
    values: dict[str, Any] = {
        "run_id": "run_1",
        "thread_id": "thread_1",
        "actor_id": "ana",
        "tenant": "acme",
        "agent": "desk",
        "model": "openai:gpt-5-mini",
        "step": 0,
        "attempt": 1,
        "usage": Usage(
            input_tokens=100, output_tokens=20, cache_read_tokens=30, cache_write_tokens=4, reasoning_tokens=5
        ),
        "cost_usd": Decimal("0.00000012345"),
        "at": at(4),
    }
    return UsageEntry(id=id_, day=day.isoformat(), **values | changes)


def an_outbox_entry(id_: str, **changes: Any) -> OutboxEntry:
    values: dict[str, Any] = {
        "tenant": "acme",
        "call_id": "call_1",
        "kind": "remind",
        "payload": {"to": "ana"},
        "attempts": 0,
        "due_at": at(10),
    }
    return OutboxEntry(id=id_, **values | changes)


async def insert(store: Store, *rows: Thread | Message | Run | Call | Vote) -> None:
    """Insert rows of any kind in one transaction."""
    await store.transact("insert", lambda tx: insert_in(tx, *rows))


def insert_in(tx: Tx, *rows: Thread | Message | Run | Call | Vote) -> None:
    """Insert rows of any kind."""
    for row in rows:
        match row:
            case Thread():
                tx.insert_thread(row)
            case Message():
                tx.insert_message(row)
            case Run():
                tx.insert_run(row)
            case Call():
                tx.insert_call(row)
            case Vote():
                tx.add_vote(row)


def a_vote(call_id: str, actor_id: str = "bo", **changes: Any) -> Vote:
    values: dict[str, Any] = {"via": "web", "at": at(5)}
    return Vote(call_id=call_id, actor_id=actor_id, **values | changes)
