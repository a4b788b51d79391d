"""Alembic's entry: runs migrations on the connection, and in the transaction, that `migrate` hands over."""

from alembic import context

from signoff.adapters.stores.sql.migrate import VERSION_TABLE
from signoff.adapters.stores.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
