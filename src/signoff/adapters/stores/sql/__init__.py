"""The store in SQLite or PostgreSQL: `SqlStore` for the composition root, `SqlTx` and `metadata` for the engine."""

from signoff.adapters.stores.sql.batch import CommitFaults
from signoff.adapters.stores.sql.schema import metadata
from signoff.adapters.stores.sql.store import SqlStore
from signoff.adapters.stores.sql.tx import SqlTx

__all__ = ["CommitFaults", "SqlStore", "SqlTx", "metadata"]
