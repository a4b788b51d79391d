"""Which engine drives the runs of a database: for consoles, which are told no more than its URL."""

from typing import Literal

from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.stores.sql import SqlStore
from signoff.ports.store import Tx

# DBOS's tables lie where `engine.dbos` puts them: beside ours, in a schema named after ours.
_HAS_DBOS = """
SELECT to_regclass(quote_ident(CASE current_schema() WHEN 'public' THEN 'dbos'
                                ELSE current_schema() || '_dbos' END) || '.workflow_status') IS NOT NULL
"""


async def engine_of(store: SqlStore) -> Literal["embedded", "dbos"]:
    """The engine whose tables are there. The store must be open."""

    def look(tx: Tx) -> bool:
        connection = connection_of(tx)
        return connection.dialect.name == "postgresql" and bool(connection.exec_driver_sql(_HAS_DBOS).scalar_one())

    return "dbos" if await store.read(look) else "embedded"
