"""The schema's versions: all migrations run in turn give the schema that the code declares."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import ReflectedIndex

import signoff.adapters.engine.core.schema
import signoff.adapters.engine.dbos.schema  # noqa: F401  # both have tables in the same schema
from signoff.adapters.stores.sql import SqlStore, metadata
from signoff.adapters.stores.sql.migrate import VERSION_TABLE, upgrade
from signoff.errors import ConfigurationError
from tests.services import postgres_schema


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def two_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """URLs of two new databases."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    else:
        with postgres_schema("migrated") as a, postgres_schema("declared") as b:
            yield a, b


def engine_of(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return create_engine(parsed.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    return create_engine(parsed, connect_args={"isolation_level": None})


def tables_of(engine: Engine) -> dict[str, object]:
    inspector = inspect(engine)
    return {
        name: {
            "columns": [
                (column["name"], str(column["type"]), column["nullable"], column["default"])
                for column in inspector.get_columns(name)
            ],
            "key": inspector.get_pk_constraint(name),
            "indexes": sorted(index_of(index) for index in inspector.get_indexes(name)),
            "uniques": sorted(map(str, inspector.get_unique_constraints(name))),
        }
        for name in inspector.get_table_names()
        if name != VERSION_TABLE
    }


def index_of(index: ReflectedIndex) -> tuple[object, ...]:
    options = index.get("dialect_options", {})
    condition = options.get("sqlite_where", options.get("postgresql_where"))
    return index["name"], index["column_names"], index["unique"], str(condition)


def test_migrations_give_the_declared_schema(two_urls: tuple[str, str]) -> None:
    migrated, declared = map(engine_of, two_urls)
    upgrade(migrated)
    metadata.create_all(declared)

    assert tables_of(migrated) == tables_of(declared)
    assert set(tables_of(migrated)) >= {"threads", "runs", "calls", "engine_runs"}
    migrated.dispose()
    declared.dispose()


async def test_without_migrating_only_a_current_schema_is_opened(two_urls: tuple[str, str]) -> None:
    url, _ = two_urls

    with pytest.raises(ConfigurationError, match="signoff migrate"):
        await SqlStore(url, migrate=False).open()

    migrating = SqlStore(url)
    await migrating.open()
    await migrating.close()
    again = SqlStore(url, migrate=False)
    await again.open()
    await again.close()


@pytest.mark.parametrize("migrate", [True, False])
async def test_a_schema_of_a_later_version_is_refused(two_urls: tuple[str, str], migrate: bool) -> None:
    url, _ = two_urls
    engine = engine_of(url)
    upgrade(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    engine.dispose()

    with pytest.raises(ConfigurationError, match="9999"):
        await SqlStore(url, migrate=migrate).open()
