"""What the DBOS adapter uses beyond DBOS's public API, held to what it needs: an upgrade that changes it fails here."""

import asyncio
import base64
import os
import pickle  # noqa: TID251  # what must be refused
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer
from dbos._serialization import DefaultSerializer
from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import make_url

from signoff.adapters.engine.dbos import DbosEngine, internals
from signoff.adapters.engine.dbos.internals import PickleRefused
from signoff.adapters.engine.dbos.queues import APPLICATION, VERSION
from signoff.adapters.engine.dbos.runtime import Runtime
from signoff.adapters.stores.sql import SqlStore
from signoff.errors import ConfigurationError
from signoff.testing.clock import FakeClock, FakeIds
from tests.conformance.engine.dbos_world import database
from tests.conformance.engine.world import PATIENCE_S

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with database() as url:
        DBOS.migrate(url)
        yield url


@pytest.fixture
def client(url: str) -> Iterator[DBOSClient]:
    runtime = Runtime(url, schema="dbos", executor_id="nobody")
    yield runtime.client
    runtime.close()


@contextmanager
def transaction(url: str, *, commit: bool = True) -> Iterator[Connection]:
    """As the store has it: statements begin and end it."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield connection
        connection.exec_driver_sql("COMMIT" if commit else "ROLLBACK")
    engine.dispose()


def enqueue(client: DBOSClient, run_id: str, workflow: str = "flow", queue: str = "nobody.listens") -> None:
    client.enqueue({"workflow_name": workflow, "queue_name": queue, "workflow_id": run_id, "app_version": VERSION})


def append(client: DBOSClient, connection: Connection, run_id: str, position: int = 1) -> None:
    internals.append_step(
        client, connection, run_id=run_id, position=position, name="record:x", output='{"state":"done"}', at_ms=1_000
    )


def test_a_step_is_journaled_in_the_callers_transaction(url: str, client: DBOSClient) -> None:
    enqueue(client, "kept")
    with transaction(url, commit=False) as connection:
        append(client, connection, "kept")
    assert client.list_workflow_steps("kept") == []

    with transaction(url) as connection:
        append(client, connection, "kept")

    (step,) = client.list_workflow_steps("kept")
    assert (step["function_id"], step["function_name"]) == (1, "record:x")
    assert (step["output"], step["error"], step["started_at_epoch_ms"]) == ({"state": "done"}, None, 1_000)


def test_steps_are_read_as_the_callers_transaction_has_left_them(url: str, client: DBOSClient) -> None:
    enqueue(client, "read")
    with transaction(url) as connection:
        append(client, connection, "read")
        (step,) = internals.read_steps(client, connection, "read")

    assert [step] == client.list_workflow_steps("read")


@pytest.mark.parametrize(("output", "serialization"), [("{", "portable_json"), ("gASVAAAA", "py_pickle")])
def test_a_step_that_is_no_json_has_no_output(url: str, client: DBOSClient, output: str, serialization: str) -> None:
    enqueue(client, "broken")
    with transaction(url) as connection:
        append(client, connection, "broken")
        connection.exec_driver_sql(
            "UPDATE dbos.operation_outputs SET output = %s, serialization = %s WHERE workflow_uuid = 'broken'",
            (output, serialization),
        )
        (step,) = internals.read_steps(client, connection, "broken")

    assert step["output"] is None


def test_single_steps_are_forgotten(url: str, client: DBOSClient) -> None:
    enqueue(client, "forgetful")
    with transaction(url) as connection:
        for position in (1, 2, 3):
            append(client, connection, "forgetful", position)
        internals.forget_steps(client, connection, "forgetful", [2])

    assert [step["function_id"] for step in client.list_workflow_steps("forgetful")] == [1, 3]


def test_a_pickle_is_refused_and_executes_nothing(url: str, client: DBOSClient, tmp_path: Path) -> None:
    """The row says how it is read, so a JSON serializer in the settings does not protect by itself."""
    proof = tmp_path / "executed"

    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(proof),)

    enqueue(client, "attacked")
    with transaction(url) as connection:
        append(client, connection, "attacked")
        connection.exec_driver_sql(
            "UPDATE dbos.operation_outputs SET serialization = 'py_pickle', output = %s WHERE workflow_uuid = %s",
            (base64.b64encode(pickle.dumps(Attack())).decode(), "attacked"),
        )

    (step,) = client.list_workflow_steps("attacked")

    assert not proof.exists()
    assert isinstance(step["output"], str), "what cannot be read comes as the text it is, which the journal refuses"
    with pytest.raises(PickleRefused):
        pickling().deserialize(base64.b64encode(pickle.dumps(1)).decode())
    with pytest.raises(PickleRefused):
        pickling().serialize(1)


@pytest.mark.parametrize("ended", ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"])
def test_a_rewind_is_the_one_of_dbos_past_the_end(url: str, client: DBOSClient, ended: str) -> None:
    names = [f"rewound-{who}-{ended}" for who in ("here", "there")]
    for name in names:
        enqueue(client, name)
        with transaction(url) as connection:
            append(client, connection, name)
        end(url, name, ended)

    with transaction(url) as connection:
        assert internals.rewind(client, connection, run_id=names[0], queue="somewhere", version="2")
    client.rewind_workflow(names[1], start_step=2**31 - 1, queue_name="somewhere", application_version="2")

    here, there = (everything(url, name) for name in names)
    assert here == there
    assert here["workflow_status"][0]["status"] == "ENQUEUED"
    assert len(here["operation_outputs"]) == 1


def test_a_workflow_that_has_not_ended_is_not_rewound(url: str, client: DBOSClient) -> None:
    enqueue(client, "unended")
    with transaction(url) as connection:
        assert not internals.rewind(client, connection, run_id="unended", queue="somewhere", version="2")
        assert not internals.rewind(client, connection, run_id="unheard of", queue="somewhere", version="2")


def end(url: str, name: str, status: str) -> None:
    """As DBOS leaves a workflow that has ended."""
    with transaction(url) as connection:
        connection.exec_driver_sql(
            "UPDATE dbos.workflow_status SET status = %s, executor_id = 'x', owner_xid = NULL, recovery_attempts = 3, "
            "started_at_epoch_ms = 1, completed_at = 2, workflow_deadline_epoch_ms = 3, deduplication_id = %s "
            "WHERE workflow_uuid = %s",
            (status, name, name),
        )
        connection.exec_driver_sql(
            "INSERT INTO dbos.workflow_output (workflow_uuid, output) VALUES (%s, 'parked')", (name,)
        )


def everything(url: str, name: str) -> dict[str, list[dict[str, object]]]:
    """All that DBOS keeps of a workflow, but for its name and for when it was written."""
    when = {
        "workflow_uuid",
        "creator_xid",
        "created_at",
        "updated_at",
        "inputs",
        "retention_timestamp",
        "completed_at_epoch_ms",
    }
    found: dict[str, list[dict[str, object]]] = {}
    with transaction(url) as connection:
        tables = connection.exec_driver_sql(
            "SELECT table_name FROM information_schema.columns "
            "WHERE table_schema = 'dbos' AND column_name = 'workflow_uuid'"
        ).scalars()
        for table in list(tables):
            rows = connection.exec_driver_sql(f"SELECT * FROM dbos.{table} WHERE workflow_uuid = %s", (name,))
            found[table] = [
                {column: value for column, value in row.items() if column not in when} for row in rows.mappings()
            ]
    return found


async def test_a_queue_is_looked_into_when_its_bell_rings(url: str, client: DBOSClient) -> None:
    """Long before its next poll: with DBOS's own interval here, the test would run out of patience."""
    begun = asyncio.Event()

    async def flow() -> None:
        begun.set()

    bell = threading.Event()
    async with executing(url, client, "belled", flow, bell=bell):
        bell.set()
        await asyncio.wait_for(begun.wait(), PATIENCE_S)


async def test_a_queue_is_looked_into_when_a_slot_is_free(url: str, client: DBOSClient) -> None:
    """One look for each of the workflows, whose queue has one slot; the bell rings once."""
    left = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
    begun = iter(left)

    async def flow() -> None:
        next(begun).set()

    bell = threading.Event()
    async with executing(url, client, "narrow", flow, bell=bell, slots=1):
        for n in range(1, len(left)):
            await asyncio.to_thread(enqueue, client, f"narrow{n}", "narrow", "narrow")
        bell.set()
        for each in left:
            await asyncio.wait_for(each.wait(), PATIENCE_S)


async def test_what_is_executed_ends_before_its_worker(url: str, client: DBOSClient) -> None:
    """Also what runs for nothing, since its workflow was given to somebody else: DBOS has it wait for their outcome."""
    begun: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def flow() -> None:
        go = asyncio.Event()
        begun.put_nowait(go)
        await go.wait()

    async with executing(url, client, "ending", flow) as dbos:
        first = await asyncio.wait_for(begun.get(), PATIENCE_S)
        await asyncio.to_thread(internals.recover, ["living"])
        second = await asyncio.wait_for(begun.get(), PATIENCE_S)
        first.set()
        finishing = asyncio.create_task(internals.finish(dbos, PATIENCE_S))
        await asyncio.sleep(0)
        second.set()
        await finishing

        assert (await status(client, "ending"))[0] == "SUCCESS"
        assert dbos._workflow_tasks == set()


async def test_what_does_not_end_is_cancelled_and_left_to_other_workers(url: str, client: DBOSClient) -> None:
    begun = asyncio.Event()

    async def flow() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with executing(url, client, "endless", flow) as dbos:
        await asyncio.wait_for(begun.wait(), PATIENCE_S)
        await internals.finish(dbos, 0.1)

        assert (await status(client, "endless")) == ("PENDING", "living")
        assert dbos._workflow_tasks == set()


@asynccontextmanager
async def executing(
    url: str,
    client: DBOSClient,
    name: str,
    flow: Callable[[], Awaitable[None]],
    *,
    bell: threading.Event | None = None,
    slots: int = 8,
) -> AsyncIterator[DBOS]:
    """A worker that executes a workflow of this name, from a queue of this name; with a `bell` it never polls."""
    await asyncio.to_thread(
        client.register_queue,
        name,
        polling_interval_sec=0.05 if bell is None else 3_600.0,
        worker_concurrency=slots,
        application_name=APPLICATION,
    )
    dbos = DBOS(config=worker_config(url))
    DBOS.workflow(name=name)(flow)
    if bell is not None:
        internals.hang_bells(dbos, {name: bell}, {name: slots})
    DBOS.listen_queues([name])
    DBOS.launch()
    try:
        await asyncio.to_thread(enqueue, client, name, name, name)
        yield dbos
    finally:
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)


async def test_recovery_gives_a_workflow_of_a_dead_executor_back_to_its_queue(url: str, client: DBOSClient) -> None:
    enqueue(client, "stranded")
    with transaction(url) as connection:
        connection.exec_driver_sql(
            "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = 'dead' WHERE workflow_uuid = 'stranded'"
        )
    DBOS(config=worker_config(url))
    DBOS.listen_queues([])
    DBOS.launch()
    try:
        await asyncio.to_thread(internals.recover, ["somebody else"])
        assert (await status(client, "stranded")) == ("PENDING", "dead")

        await asyncio.to_thread(internals.recover, ["dead"])
        assert (await status(client, "stranded"))[0] == "ENQUEUED"
    finally:
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)


def worker_config(url: str) -> DBOSConfig:
    """A worker on the database."""
    return {
        "name": APPLICATION,
        "system_database_url": url,
        "application_version": VERSION,
        "executor_id": "living",
        "serializer": DBOSPortableJSONSerializer(),
        "log_level": "WARNING",
    }


async def status(client: DBOSClient, workflow_id: str) -> tuple[str, str | None]:
    (found,) = await asyncio.to_thread(client.list_workflows, workflow_ids=[workflow_id])
    return found.status, found.executor_id


def test_sqlite_is_refused_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/desk.db"
    with pytest.raises(ConfigurationError, match="postgresql"):
        DbosEngine(SqlStore(url), url=url, clock=FakeClock(), ids=FakeIds())


def pickling() -> DefaultSerializer:
    """DBOS's own default, which pickles."""
    return DefaultSerializer()
