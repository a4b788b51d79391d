"""Who delivers an outbox entry.

Revision: 0004
Down revision: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("outbox", sa.Column("notifier", _Text))
