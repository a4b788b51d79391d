"""Decision links that were used.

Revision: 0003
Down revision: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "used_links",
        sa.Column("id", _Text, nullable=False),
        sa.Column("call_id", _Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_used_links"),
    )
    op.create_index("ix_used_links_call", "used_links", ["call_id"])
