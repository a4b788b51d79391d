"""Where the engine's statements run: in the transaction of the store."""

from sqlalchemy.engine import Connection

from signoff.errors import ConfigurationError
from signoff.ports.store import Tx


def connection_of(tx: Tx) -> Connection:
    """The database connection of a transaction of the SQL store.

    Raises:
        ConfigurationError: the store keeps no SQL database.
    """
    connection = getattr(tx, "connection", None)
    if not isinstance(connection, Connection):
        raise ConfigurationError("the embedded engine lives in the database of the SQL store; this store has none")
    return connection
