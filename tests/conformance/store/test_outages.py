"""What nobody waits for, where the database refuses for longer than the store's patience (`Store.transact_soon`).

Whoever submitted it goes on, so what comes later must not take effect without it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from signoff.adapters.stores.sql import SqlStore, SqlTx
from signoff.domain.frame import text
from signoff.errors import StoreBusy
from signoff.ports.store import Tx
from tests.conformance.store.conftest import OpenStore

IMPATIENT = timedelta()


class Outage:
    """Refuses whatever asks, until it is over. Called in the store's threads."""

    def __init__(self, statement: str) -> None:
        self.over = False
        self.refused_twice = asyncio.Event()
        self._statement = statement
        self._loop = asyncio.get_running_loop()
        self._refusals = 0

    def strike(self, tx: SqlTx) -> None:
        """Raise what the database raises when it cannot work for now."""
        if not self.over:
            self._refusals += 1
            if self._refusals == 2:
                self._loop.call_soon_threadsafe(self.refused_twice.set)
            tx.connection.exec_driver_sql(self._statement)


@pytest.fixture
async def outage(database_url: str) -> Outage:
    """Of a SQLite file that cannot be opened, or a PostgreSQL server that is gone."""
    on_sqlite = database_url.startswith("sqlite")
    statement = (
        "ATTACH '/no/such/directory/x.db' AS gone" if on_sqlite else "SELECT pg_terminate_backend(pg_backend_pid())"
    )
    return Outage(statement)


def say(word: str) -> Callable[[Tx], None]:
    def work(tx: Tx) -> None:
        tx.emit("run", [text(word)])

    return work


async def said(store: SqlStore) -> list[object]:
    return [each.frame["text"] for each in await store.read(lambda tx: tx.frames("run", after=0, limit=9))]


async def test_what_was_refused_on_its_own_comes_before_what_is_submitted_later(
    open_store: OpenStore, outage: Outage
) -> None:
    def piece(tx: SqlTx) -> None:
        outage.strike(tx)
        say("first")(tx)

    async with open_store(patience=IMPATIENT) as store:
        store.transact_soon("soon", piece)
        await asyncio.wait_for(outage.refused_twice.wait(), 5)
        store.transact_soon("soon", say("second"))
        outage.over = True
        await store.transact("later", say("third"))

        assert await said(store) == ["first", "second", "third"]


async def test_what_is_submitted_while_a_piece_is_being_refused_takes_it_along(
    open_store: OpenStore, outage: Outage
) -> None:
    begun, submitted = threading.Event(), threading.Event()

    def piece(tx: SqlTx) -> None:
        begun.set()
        assert submitted.wait(5)
        try:
            outage.strike(tx)
        finally:
            outage.over = True
        say("first")(tx)

    async with open_store(patience=IMPATIENT) as store:
        store.transact_soon("soon", piece)
        assert await asyncio.to_thread(begun.wait, 5)
        waiting = []
        for _ in range(3):
            waiting.append(asyncio.create_task(store.transact("later", lambda tx: tx.frames("run", after=0, limit=9))))
            for _ in range(2):
                await asyncio.sleep(0)
        submitted.set()

        assert all(await asyncio.gather(*waiting))


async def test_what_is_refused_together_fails_together_and_the_next_one_works(
    open_store: OpenStore, outage: Outage
) -> None:
    def work(tx: SqlTx) -> None:
        outage.strike(tx)
        say("carrier")(tx)

    async with open_store(patience=IMPATIENT) as store:
        store.transact_soon("soon", say("soon"))
        with pytest.raises(StoreBusy, match="'soon' and 1 more"):
            await store.transact("carrier", work)
        await store.transact("next", say("next"))

        assert await said(store) == ["next"]


async def test_a_store_that_closes_gives_up_what_is_refused(
    open_store: OpenStore, outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(patience=IMPATIENT) as store:
        store.transact_soon("the refused piece", outage.strike)
        await asyncio.wait_for(outage.refused_twice.wait(), 5)
        with caplog.at_level(logging.ERROR):
            await store.close()
            await asyncio.sleep(0)  # what the closing store has to tell

    assert "the refused piece" in caplog.text
