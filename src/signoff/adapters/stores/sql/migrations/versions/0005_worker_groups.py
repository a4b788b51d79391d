"""Steps on their way through worker groups, and the workers that live.

Revision: 0005
Down revision: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "engine_tasks",
        sa.Column("run_id", _Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("name", _Text, nullable=False),
        sa.Column("worker_group", _Text, nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("retry", sa.Text, nullable=False),
        sa.Column("state", _Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("spared", sa.Integer, nullable=False),
        sa.Column("dispatches", sa.Integer, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position", name="pk_engine_tasks"),
    )
    op.create_index(
        "ix_engine_tasks_next",
        "engine_tasks",
        ["next_at"],
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_table(
        "engine_workers",
        sa.Column("id", _Text, nullable=False),
        sa.Column("beat_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_engine_workers"),
    )
