"""The tables of people's side: threads, runs, calls, audit, ledger, frames.

Revision: 0001
Down revision: none
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# Byte order in PostgreSQL, as in SQLite: ids sort by time, a locale would sort them otherwise.
_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _create_conversations()
    _create_runs()
    _create_calls()
    _create_records()
    _create_streams()


def _create_conversations() -> None:
    op.create_table(
        "threads",
        sa.Column("id", _Text, nullable=False),
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("title", _Text, nullable=False),
        sa.Column("transient", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("default_agent", _Text),
        sa.Column("model", _Text),
        sa.Column("persona", _Text),
        sa.Column("active_run_id", _Text),
        sa.Column("last_message_preview", _Text),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("last_seq", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_threads"),
    )
    op.create_index("ix_threads_owner", "threads", ["tenant", "actor_id", "updated_at"])
    op.create_table(
        "messages",
        sa.Column("id", _Text, nullable=False),
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("content", _Text, nullable=False),
        sa.Column("run_id", _Text),
        sa.Column("step", sa.Integer),
        sa.Column("agent_name", _Text),
        sa.Column("reasoning", _Text),
        sa.Column("usage", sa.Text),
        sa.Column("metadata", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
    )
    op.create_index("ix_messages_thread", "messages", ["thread_id", "seq"], unique=True)


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", _Text, nullable=False),
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("actor_roles", sa.Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("agent", _Text, nullable=False),
        sa.Column("stream_id", _Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("durable", sa.Boolean, nullable=False),
        sa.Column("parked", sa.Boolean, nullable=False),
        sa.Column("parent_id", _Text),
        sa.Column("parent_call_id", _Text),
        sa.Column("detached", sa.Boolean, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("fingerprint", _Text, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_usd", sa.BigInteger, nullable=False),
        sa.Column("error_code", _Text),
        sa.Column("error", _Text),
        sa.Column("owner", _Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("attempt_seq", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    _partial_index("ix_runs_lease", "runs", ["status", "lease_until"], where="lease_until IS NOT NULL")
    _partial_index("ix_runs_owner", "runs", ["owner"], where="owner IS NOT NULL")
    _partial_index("ix_runs_parent", "runs", ["parent_id"], where="parent_id IS NOT NULL")
    op.create_index("ix_runs_status", "runs", ["status", "id"])


def _create_calls() -> None:
    op.create_table(
        "calls",
        sa.Column("id", _Text, nullable=False),
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("message_id", _Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("provider_id", _Text, nullable=False),
        sa.Column("name", _Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("arguments", sa.Text),
        sa.Column("edited_arguments", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("agent_name", _Text, nullable=False),
        sa.Column("parent_call_id", _Text),
        sa.Column("child_run_id", _Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("output", sa.Text),
        sa.Column("error", _Text),
        sa.Column("approver", _Text),
        sa.Column("quorum", sa.Integer, nullable=False),
        sa.Column("may_requester", sa.Boolean, nullable=False),
        sa.Column("request_reason", _Text),
        sa.Column("confirmation", sa.Text),
        sa.Column("target", sa.Text),
        sa.Column("digest", _Text),
        sa.Column("schema_version", _Text),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("widened", sa.Text, nullable=False),
        sa.Column("request", sa.Text),
        sa.Column("in_doubt", sa.Text),
        sa.Column("decided_by", _Text),
        sa.Column("decided_via", _Text),
        sa.Column("decided_at", sa.BigInteger),
        sa.Column("decision_reason", _Text),
        sa.Column("remember", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls"),
    )
    op.create_index("ix_calls_message", "calls", ["message_id"])
    _partial_index("ix_calls_open", "calls", ["tenant", "created_at", "id"], where="status IN ('in_doubt', 'pending')")
    op.create_index("ix_calls_run", "calls", ["run_id", "step", "index"])
    op.create_table(
        "votes",
        sa.Column("call_id", _Text, nullable=False),
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("via", _Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("call_id", "actor_id", name="pk_votes"),
    )
    op.create_table(
        "remembered",
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("tool", _Text, nullable=False),
        sa.Column("by", _Text, nullable=False),
        sa.Column("approver", _Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "tool", name="pk_remembered"),
    )


def _create_records() -> None:
    op.create_table(
        "audit_heads",
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", _Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_audit_heads"),
    )
    op.create_table(
        "audit",
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("run_id", _Text),
        sa.Column("call_id", _Text),
        sa.Column("actor_id", _Text),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("previous", _Text, nullable=False),
        sa.Column("hash", _Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "seq", name="pk_audit"),
    )
    op.create_index("ix_audit_call", "audit", ["call_id"])
    op.create_table(
        "ledger",
        sa.Column("id", _Text, nullable=False),
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("agent", _Text, nullable=False),
        sa.Column("model", _Text, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_usd", sa.BigInteger),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("day", _Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
    )
    op.create_index("ix_ledger_actor", "ledger", ["tenant", "actor_id", "day"])
    op.create_index("ix_ledger_run", "ledger", ["run_id"])
    op.create_table(
        "idempotency_keys",
        sa.Column("actor_id", _Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("key", _Text, nullable=False),
        sa.Column("body_digest", _Text, nullable=False),
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("thread_id", _Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("actor_id", "tenant", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_run", "idempotency_keys", ["run_id"])
    op.create_table(
        "outbox",
        sa.Column("id", _Text, nullable=False),
        sa.Column("tenant", _Text, nullable=False),
        sa.Column("call_id", _Text, nullable=False),
        sa.Column("kind", _Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("delivered_at", sa.BigInteger),
        sa.Column("last_error", _Text),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )
    op.create_index("ix_outbox_call", "outbox", ["call_id"])
    _partial_index("ix_outbox_due", "outbox", ["due_at"], where="delivered_at IS NULL")


def _create_streams() -> None:
    op.create_table(
        "streams",
        sa.Column("id", _Text, nullable=False),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_streams"),
    )
    op.create_table(
        "frames",
        sa.Column("stream_id", _Text, nullable=False),
        sa.Column("last_seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("first_seq", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("stream_id", "last_seq", name="pk_frames"),
    )
    op.create_table(
        "withdrawals",
        sa.Column("stream_id", _Text, nullable=False),
        sa.Column("seq", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("from_seq", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("stream_id", "seq", name="pk_withdrawals"),
    )


def _partial_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
