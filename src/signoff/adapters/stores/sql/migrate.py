"""The schema's versions: Alembic migrations that ship inside the package, run without an ini file."""

from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from signoff.errors import ConfigurationError

#: Not Alembic's default name: the application may keep its own tables, and versions, beside ours.
VERSION_TABLE = "signoff_schema"

# Any number, the same in all processes: PostgreSQL's lock against two of them migrating at once.
_LOCK = 7_466_446


def upgrade(engine: Engine) -> None:
    """Bring the schema up to date. Several processes may do so at once; one works, the others wait.

    Raises:
        ConfigurationError: the schema is newer than this version of signoff.
    """
    config = _config()
    with engine.connect() as connection:
        if _is_current(connection, config):
            return
    with _locked(engine) as connection:
        if not _is_current(connection, config):
            config.attributes["connection"] = connection
            command.upgrade(config, "heads")


def require_current(engine: Engine) -> None:
    """Refuse a schema that is not up to date. Raises `ConfigurationError`, which says what to do."""
    config = _config()
    with engine.connect() as connection:
        if not _is_current(connection, config):
            raise ConfigurationError(
                "the database schema is older than this version of signoff: run `signoff migrate`, "
                "or open the store with migrate=True"
            )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "signoff.adapters.stores.sql:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _is_current(connection: Connection, config: Config) -> bool:
    found = set(MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads())
    script = ScriptDirectory.from_config(config)
    known = {revision.revision for revision in script.walk_revisions()}
    if not found <= known:
        newer = ", ".join(sorted(found - known))
        raise ConfigurationError(f"the database schema ({newer}) is newer than this version of signoff: upgrade it")
    return found == set(script.get_heads())


@contextmanager
def _locked(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction that no other process migrates beside; committed at the end."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": _LOCK})
        try:
            yield connection
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        connection.exec_driver_sql("COMMIT")
