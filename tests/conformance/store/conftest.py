"""The stores under test: memory, a SQLite file, a PostgreSQL schema."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
import pytest

from signoff.adapters.stores.memory import MemoryStore
from signoff.adapters.stores.sql import SqlStore
from signoff.ports.store import Store
from tests.services import postgres_schema

#: Opens a store on the test's database, as another process would; takes SqlStore's options.
OpenStore: TypeAlias = Callable[..., AbstractAsyncContextManager[SqlStore]]


@pytest.fixture(scope="session")
def postgres_store_url() -> Iterator[str]:
    with postgres_schema("store") as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database without rows."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    url = str(request.getfixturevalue("postgres_store_url"))
    empty(url)
    return url


@pytest.fixture
def open_store(database_url: str) -> OpenStore:
    """Opens stores on `database_url`: ``async with open_store(patience=…) as store``."""

    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[SqlStore]:
        store = SqlStore(database_url, **options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    return open_


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An open store without rows."""
    opened: Store
    match request.param:
        case "memory":
            opened = MemoryStore()
        case "sqlite":
            opened = SqlStore(f"sqlite:///{tmp_path}/store.db")
        case _:
            url = str(request.getfixturevalue("postgres_store_url"))
            empty(url)
            opened = SqlStore(url)
    await opened.open()
    yield opened
    await opened.close()


def empty(url: str) -> None:
    """Delete all rows of a schema."""
    with psycopg.connect(url, autocommit=True) as connection:
        names = connection.execute(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()"
            " AND tablename <> 'signoff_schema'"
        ).fetchall()
        # Much faster than TRUNCATE for a few rows.
        connection.execute("; ".join(f"DELETE FROM {name}" for (name,) in names).encode())
