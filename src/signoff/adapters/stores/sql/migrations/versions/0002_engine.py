"""The tables of the embedded engine: runs, journals, signals, waits.

Revision: 0002
Down revision: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# Byte order in PostgreSQL, as in SQLite: ids sort by time, a locale would sort them otherwise.
_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_RowNumber = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_runs()
    op.create_table(
        "checkpoints",
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("kind", _Text, nullable=False),
        sa.Column("name", _Text, nullable=False),
        sa.Column("state", _Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_checkpoints"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "signals",
        sa.Column("id", _RowNumber, nullable=False),
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("dedup_key", _Text, nullable=False),
        sa.Column("name", _Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_signals"),
    )
    op.create_index("ix_signals_dedup", "signals", ["run_id", "dedup_key"], unique=True)
    _create_partial_index("ix_signals_untaken", "signals", ["run_id", "name"], where="position IS NULL")
    op.create_table(
        "waits",
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("name", _Text, nullable=False),
        sa.Column("deadline", sa.BigInteger),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_waits"),
        sqlite_with_rowid=False,
    )


def _create_runs() -> None:
    op.create_table(
        "engine_runs",
        sa.Column("id", _Text, nullable=False),
        sa.Column("workflow", _Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("output", sa.Text),
        sa.Column("error_type", _Text),
        sa.Column("error", _Text),
        sa.Column("error_code", _Text),
        sa.Column("parent_id", _Text),
        sa.Column("linked", sa.Boolean, nullable=False),
        sa.Column("namespace", _Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("crashes", sa.Integer, nullable=False),
        sa.Column("owner", _Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("wake_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_engine_runs"),
    )
    op.create_index("ix_engine_runs_status", "engine_runs", ["status", "id"])
    for index, column in (
        ("ix_engine_runs_owner", "owner"),
        ("ix_engine_runs_wake", "wake_at"),
        ("ix_engine_runs_parent", "parent_id"),
        ("ix_engine_runs_ended", "ended_at"),
    ):
        _create_partial_index(index, "engine_runs", [column], where=f"{column} IS NOT NULL")


def _create_partial_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
