"""What is SQLite's own: locks of others, its file, its settings."""

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from signoff.adapters.stores.sql import SqlStore, SqlTx
from signoff.errors import ConfigurationError, StoreBusy
from signoff.ports.store import Tx
from tests.conformance.store.rows import a_thread, insert


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_lock_that_is_given_back_in_time_is_waited_for(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}")
    await store.open()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.create_task(insert(store, a_thread()))
    # Readers are not held up; when this one is served the writer has met the lock.
    assert await store.read(lambda tx: tx.thread("thread_1")) is None
    done, _ = await asyncio.wait({waiting}, timeout=0.1)
    assert done == set()
    other.execute("ROLLBACK")
    await waiting

    assert await store.read(lambda tx: tx.thread("thread_1")) == a_thread()
    other.close()
    await store.close()


async def test_patience_ends_in_store_busy_for_each_and_the_next_one_works(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}", patience=timedelta(milliseconds=50))
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    first, second = await asyncio.gather(
        insert(store, a_thread("a")), insert(store, a_thread("b")), return_exceptions=True
    )
    other.execute("ROLLBACK")
    await insert(store, a_thread("c"))

    assert isinstance(first, StoreBusy)
    assert isinstance(second, StoreBusy)
    assert "'insert'" in str(first)
    assert await store.read(lambda tx: [id_ for id_ in "abc" if tx.thread(id_)]) == ["c"]
    other.close()
    await store.close()


async def test_a_full_disk_is_store_busy_and_heals(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}", patience=timedelta(milliseconds=50))
    await store.open()

    async def limit(pages: int) -> None:
        await store.transact("limit", lambda tx: tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}"))

    await insert(store, a_thread("before"))
    await limit(1)  # never fewer than there are: from now on the file cannot grow
    with pytest.raises(StoreBusy, match="full"):
        await insert(store, a_thread("large", title="x" * 1_000_000))
    await limit(1_000_000)
    await insert(store, a_thread("large", title="x" * 1_000_000))

    assert await store.read(lambda tx: tx.thread("before")) == a_thread("before")
    await store.close()


async def test_every_commit_reaches_the_disk_and_readers_never_wait(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}")
    await store.open()

    def settings(tx: SqlTx) -> list[object]:
        names = ("journal_mode", "synchronous")
        return [tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert await store.transact("settings", settings) == ["wal", 2]
    await store.close()


async def test_a_reader_sees_one_moment(path: Path) -> None:
    store = SqlStore(f"sqlite:///{path}")
    await store.open()
    reading, written = threading.Event(), threading.Event()

    def read(tx: Tx) -> list[bool]:
        before = tx.thread("a") is not None
        reading.set()
        assert written.wait(5)
        return [before, tx.thread("a") is not None]

    task = asyncio.create_task(store.read(read))
    await asyncio.to_thread(reading.wait, 5)
    await insert(store, a_thread("a"))
    written.set()

    assert await task == [False, False]
    await store.close()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "not a url", "sqlite:////no/such/x.db"]
)
async def test_a_database_that_cannot_be_used_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises((ConfigurationError, StoreBusy)):
        await SqlStore(url, patience=timedelta(milliseconds=10)).open()
