"""The tables that people's side of signoff lives in. One schema for SQLite and PostgreSQL.

A change here needs a migration in `migrations/versions`; a test compares the two. There are no foreign keys: a run
may be deleted while its calls stay, and the engine's rows come and go on their own.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, MetaData, Table, text

from signoff.adapters.stores.sql.types import Instant, JsonText, Money, SafeText, Word, Words
from signoff.domain.audit import AuditKind
from signoff.domain.call import CallStatus, ToolKind
from signoff.domain.run import RunStatus
from signoff.domain.thread import Role

#: Shared with the embedded engine, whose tables change in the same transactions.
metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

threads = Table(
    "threads",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("actor_id", SafeText, nullable=False),
    Column("tenant", SafeText, nullable=False),
    Column("title", SafeText, nullable=False),
    Column("transient", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("default_agent", SafeText),
    Column("model", SafeText),
    Column("persona", SafeText),
    Column("active_run_id", SafeText),
    Column("last_message_preview", SafeText),
    Column("deleted_at", Instant),
    # Counts messages; never falls, so a deleted message's place is not given away again.
    Column("last_seq", BigInteger, nullable=False, server_default="0"),
    Index("ix_threads_owner", "tenant", "actor_id", "updated_at"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("thread_id", SafeText, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("role", Word(Role), nullable=False),
    Column("content", SafeText, nullable=False),
    Column("run_id", SafeText),
    Column("step", Integer),
    Column("agent_name", SafeText),
    Column("reasoning", SafeText),
    Column("usage", JsonText),
    Column("metadata", JsonText),
    Column("created_at", Instant, nullable=False),
    Index("ix_messages_thread", "thread_id", "seq", unique=True),
)

runs = Table(
    "runs",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("thread_id", SafeText, nullable=False),
    Column("actor_id", SafeText, nullable=False),
    Column("actor_roles", Words, nullable=False),
    Column("tenant", SafeText, nullable=False),
    Column("agent", SafeText, nullable=False),
    Column("stream_id", SafeText, nullable=False),
    Column("status", Word(RunStatus), nullable=False),
    Column("durable", Boolean, nullable=False),
    Column("parked", Boolean, nullable=False),
    Column("parent_id", SafeText),
    Column("parent_call_id", SafeText),
    Column("detached", Boolean, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("input", JsonText, nullable=False),
    Column("fingerprint", SafeText, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost_usd", Money, nullable=False),
    Column("error_code", SafeText),
    Column("error", SafeText),
    Column("owner", SafeText),
    Column("lease_until", Instant),
    Column("attempt_seq", BigInteger),
    Column("created_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Index("ix_runs_status", "status", "id"),
    Index(
        "ix_runs_lease",
        "status",
        "lease_until",
        sqlite_where=text("lease_until IS NOT NULL"),
        postgresql_where=text("lease_until IS NOT NULL"),
    ),
    Index("ix_runs_owner", "owner", sqlite_where=text("owner IS NOT NULL"), postgresql_where=text("owner IS NOT NULL")),
    Index(
        "ix_runs_parent",
        "parent_id",
        sqlite_where=text("parent_id IS NOT NULL"),
        postgresql_where=text("parent_id IS NOT NULL"),
    ),
)

#: Literal, so that both planners see that the partial index answers the query.
OPEN_CALLS = text("calls.status IN ('in_doubt', 'pending')")
_OPEN = text("status IN ('in_doubt', 'pending')")

calls = Table(
    "calls",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("run_id", SafeText, nullable=False),
    Column("thread_id", SafeText, nullable=False),
    Column("message_id", SafeText, nullable=False),
    Column("step", Integer, nullable=False),
    Column("index", Integer, nullable=False),
    Column("provider_id", SafeText, nullable=False),
    Column("name", SafeText, nullable=False),
    Column("kind", Word(ToolKind), nullable=False),
    Column("arguments", JsonText),
    Column("edited_arguments", JsonText),
    Column("status", Word(CallStatus), nullable=False),
    Column("actor_id", SafeText, nullable=False),
    Column("tenant", SafeText, nullable=False),
    Column("agent_name", SafeText, nullable=False),
    Column("parent_call_id", SafeText),
    Column("child_run_id", SafeText),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    Column("output", JsonText),
    Column("error", SafeText),
    Column("approver", SafeText),
    Column("quorum", Integer, nullable=False),
    Column("may_requester", Boolean, nullable=False),
    Column("request_reason", SafeText),
    Column("confirmation", JsonText),
    Column("target", JsonText),
    Column("digest", SafeText),
    Column("schema_version", SafeText),
    Column("expires_at", Instant),
    Column("widened", Words, nullable=False),
    Column("request", JsonText),
    Column("in_doubt", JsonText),
    Column("decided_by", SafeText),
    Column("decided_via", SafeText),
    Column("decided_at", Instant),
    Column("decision_reason", SafeText),
    Column("remember", Boolean, nullable=False),
    Index("ix_calls_run", "run_id", "step", "index"),
    Index("ix_calls_message", "message_id"),
    Index("ix_calls_open", "tenant", "created_at", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
)

votes = Table(
    "votes",
    metadata,
    Column("call_id", SafeText, primary_key=True),
    Column("actor_id", SafeText, primary_key=True),
    Column("via", SafeText, nullable=False),
    Column("at", Instant, nullable=False),
)

remembered = Table(
    "remembered",
    metadata,
    Column("thread_id", SafeText, primary_key=True),
    Column("tool", SafeText, primary_key=True),
    Column("by", SafeText, nullable=False),
    Column("approver", SafeText, nullable=False),
    Column("at", Instant, nullable=False),
)

#: One row a tenant, locked by whoever appends, so that a chain never forks.
audit_heads = Table(
    "audit_heads",
    metadata,
    Column("tenant", SafeText, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", SafeText, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("tenant", SafeText, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
    Column("kind", Word(AuditKind), nullable=False),
    Column("run_id", SafeText),
    Column("call_id", SafeText),
    Column("actor_id", SafeText),
    Column("data", JsonText, nullable=False),
    Column("previous", SafeText, nullable=False),
    Column("hash", SafeText, nullable=False),
    Index("ix_audit_call", "call_id"),
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("run_id", SafeText, nullable=False),
    Column("thread_id", SafeText, nullable=False),
    Column("actor_id", SafeText, nullable=False),
    Column("tenant", SafeText, nullable=False),
    Column("agent", SafeText, nullable=False),
    Column("model", SafeText, nullable=False),
    Column("step", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("cache_write_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("cost_usd", Money),
    Column("at", Instant, nullable=False),
    Column("day", SafeText, nullable=False),
    Index("ix_ledger_run", "run_id"),
    Index("ix_ledger_actor", "tenant", "actor_id", "day"),
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("actor_id", SafeText, primary_key=True),
    Column("tenant", SafeText, primary_key=True),
    Column("key", SafeText, primary_key=True),
    Column("body_digest", SafeText, nullable=False),
    Column("run_id", SafeText, nullable=False),
    Column("thread_id", SafeText, nullable=False),
    Column("at", Instant, nullable=False),
    Index("ix_idempotency_keys_run", "run_id"),
)

_UNDELIVERED = text("delivered_at IS NULL")

outbox = Table(
    "outbox",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("tenant", SafeText, nullable=False),
    Column("call_id", SafeText, nullable=False),
    Column("kind", SafeText, nullable=False),
    Column("payload", JsonText, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("delivered_at", Instant),
    Column("last_error", SafeText),
    Column("notifier", SafeText),
    Index("ix_outbox_due", "due_at", sqlite_where=_UNDELIVERED, postgresql_where=_UNDELIVERED),
    Index("ix_outbox_call", "call_id"),
)

#: Decision links that were used, so that none is used twice.
used_links = Table(
    "used_links",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("call_id", SafeText, nullable=False),
    Column("at", Instant, nullable=False),
    Index("ix_used_links_call", "call_id"),
)

#: The last number given away on a stream, withdrawn ones included.
streams = Table(
    "streams",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("last_seq", BigInteger, nullable=False),
)

#: One row an emit: the frames `first_seq` to `last_seq` as one JSON array.
frames = Table(
    "frames",
    metadata,
    Column("stream_id", SafeText, primary_key=True),
    Column("last_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("body", JsonText, nullable=False),
)

#: Numbers `from_seq` to `seq` were withdrawn: a reader whose cursor lies in between starts afresh.
withdrawals = Table(
    "withdrawals",
    metadata,
    Column("stream_id", SafeText, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("from_seq", BigInteger, nullable=False),
)
