"""Runs that are undone when they are cancelled.

Revision: 0006
Down revision: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("engine_runs", sa.Column("compensate", sa.Boolean, nullable=False, server_default=sa.false()))
