"""What is PostgreSQL's own: deadlocks, lost connections, and a COMMIT whose answer is lost."""

import asyncio
import select
import socket
import socketserver
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from sqlalchemy.engine import make_url

from signoff.adapters.stores.sql import SqlStore, SqlTx
from signoff.domain.audit import AuditKind
from signoff.errors import StoreBusy
from tests.conformance.store.conftest import empty
from tests.conformance.store.rows import a_run, a_thread, at, insert

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(postgres_store_url: str) -> str:
    empty(postgres_store_url)
    return postgres_store_url


@asynccontextmanager
async def opened(url: str, patience: timedelta = timedelta(seconds=30)) -> AsyncIterator[SqlStore]:
    store = SqlStore(url, patience=patience)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def note(tx: SqlTx) -> None:
    """Something that shows when it is done twice."""
    tx.append_audit(tenant="acme", at=at(0), kind=AuditKind.APPROVED, run_id=None, call_id=None, actor_id=None, data={})


async def notes(store: SqlStore) -> int:
    return len(await store.read(lambda tx: tx.audit(tenant="acme")))


async def test_of_a_deadlock_both_come_through(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        await insert(one, a_thread("a"), a_thread("b"))
        loop = asyncio.get_running_loop()
        first_locks = {name: asyncio.Event() for name in "ab"}

        def lock(first: str, second: str) -> Callable[[SqlTx], None]:
            def work(tx: SqlTx) -> None:
                tx.change_thread(first, title=f"{first} first")
                loop.call_soon_threadsafe(first_locks[first].set)
                asyncio.run_coroutine_threadsafe(first_locks[second].wait(), loop).result(5)
                tx.change_thread(second, title=f"{first} first")
                note(tx)

            return work

        await asyncio.gather(one.transact("ab", lock("a", "b")), other.transact("ba", lock("b", "a")))

        assert await notes(one) == 2


async def test_who_reads_a_locked_run_waits_for_the_end_of_the_other_transaction(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        await insert(one, a_thread("t"), a_run("r", thread_id="t", attempt_seq=None))
        loop = asyncio.get_running_loop()
        locked, waits = asyncio.Event(), threading.Event()

        def write(tx: SqlTx) -> None:
            tx.run("r", lock=True)
            loop.call_soon_threadsafe(locked.set)
            assert waits.wait(5), "the other one did not wait"
            tx.change_run("r", attempt_seq=7)

        def read(tx: SqlTx) -> int | None:
            run = tx.run("r", lock=True)
            return None if run is None else run.attempt_seq

        writing = asyncio.create_task(one.transact("write", write))
        await locked.wait()
        reading = asyncio.create_task(other.transact("read", read))
        while not (reading.done() or await one.read(_somebody_waits)):  # noqa: ASYNC110  # a server tells nobody
            await asyncio.sleep(0.01)
        waits.set()
        await writing

        assert await reading == 7


def _somebody_waits(tx: SqlTx) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
    return bool(tx.connection.exec_driver_sql(waiting).scalar_one())


async def test_work_runs_again_when_its_connection_is_lost(url: str) -> None:
    attempts = 0

    def work(tx: SqlTx) -> None:
        nonlocal attempts
        attempts += 1
        note(tx)
        if attempts == 1:
            tx.connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    async with opened(url) as store:
        await store.transact("work", work)

        assert attempts == 2
        assert await notes(store) == 1


async def test_a_lost_database_is_store_busy_after_patience(url: str) -> None:
    def work(tx: SqlTx) -> None:
        tx.connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    async with opened(url, patience=timedelta(milliseconds=50)) as store:
        with pytest.raises(StoreBusy, match="'work'"):
            await store.transact("work", work)
        await store.transact("next", note)

        assert await notes(store) == 1


@pytest.mark.parametrize("reaches_the_server", [True, False])
async def test_a_commit_whose_answer_is_lost_is_done_once(url: str, reaches_the_server: bool) -> None:
    """The connection breaks at COMMIT: the server may have done it or not, and only the server knows."""
    with _breaking_at_commit(url, reaches_the_server=reaches_the_server) as line:
        async with opened(line.url) as store:
            await store.transact("before", note)
            line.breaks.set()
            await store.transact("lost", note)

            assert not line.breaks.is_set()
            assert await notes(store) == 2


async def test_a_piece_is_not_done_twice_where_nobody_can_tell_whether_it_was_done(url: str) -> None:
    """Its COMMIT reached the server, and there is no answer within the store's patience."""
    with _breaking_at_commit(url, reaches_the_server=True) as line:
        async with opened(line.url, patience=timedelta()) as store:
            line.down.set()
            line.breaks.set()
            store.transact_soon("lost", note)
            assert await asyncio.to_thread(line.asked.wait, 5)
            line.down.clear()
            await store.transact("next", note)

            assert await notes(store) == 2


async def test_a_listener_that_lost_its_connection_wakes_its_readers_and_listens_again(url: str) -> None:
    async with opened(f"{url}&application_name=cut-off") as here, opened(url) as there:
        woken = asyncio.Event()
        end = here.subscribe("s", woken.set)
        await asyncio.wait_for(woken.wait(), 5)
        woken.clear()

        await there.transact(
            "cut",
            lambda tx: tx.connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'cut-off' AND query = 'LISTEN signoff_frames'"
            ),
        )
        await asyncio.wait_for(woken.wait(), 5)

        woken.clear()
        await there.transact("emit", lambda tx: tx.emit("s", [{"kind": "text", "text": "a"}]))
        await asyncio.wait_for(woken.wait(), 5)
        end()


@dataclass(slots=True)
class Line:
    """The way to a server. `breaks`: one connection breaks at its COMMIT, and while `down` no other one works.

    `asked`: something was asked of it while it was broken and down.
    """

    url: str = ""
    breaks: threading.Event = field(default_factory=threading.Event)
    down: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)


@contextmanager
def _breaking_at_commit(url: str, *, reaches_the_server: bool) -> Iterator[Line]:
    """A proxy in front of the server. It breaks right before the server gets the COMMIT, or after it has answered."""
    server_url = make_url(url)
    line = Line()

    class PassOn(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            with socket.create_connection((server_url.host or "127.0.0.1", server_url.port or 5432)) as server:
                while True:
                    for source in select.select([client, server], [], [])[0]:
                        data = source.recv(65536)
                        if not data:
                            return
                        if source is client and line.down.is_set() and not line.breaks.is_set():
                            line.asked.set()
                            return
                        if source is client and line.breaks.is_set() and b"COMMIT" in data:
                            line.breaks.clear()
                            if reaches_the_server:
                                server.sendall(data)
                                server.recv(65536)
                            return
                        (server if source is client else client).sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), PassOn) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        host, port = proxy.server_address[:2]
        try:
            line.url = server_url.set(host=str(host), port=port).render_as_string(hide_password=False)
            yield line
        finally:
            proxy.shutdown()
            thread.join()
