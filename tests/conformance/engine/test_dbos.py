"""The engine contract, over DBOS on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ConfigurationError
from signoff.ports.engine import EngineStatus, Retry, TaskInfo
from tests.conformance.engine.contract_cancel import CancelContract
from tests.conformance.engine.contract_children import ChildrenContract, leaf, parent_of
from tests.conformance.engine.contract_patches import PatchesContract
from tests.conformance.engine.contract_positions import PositionsContract
from tests.conformance.engine.contract_recovery import RecoveryContract
from tests.conformance.engine.contract_steps import StepsContract, dispatching
from tests.conformance.engine.contract_waits import WaitsContract, one_wait
from tests.conformance.engine.dbos_world import DbosWorld, database, empty, prepare
from tests.conformance.engine.world import ONCE, EngineWorld, Tool

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def prepared() -> Iterator[str]:
    with database() as url:
        asyncio.run(prepare(url))
        yield url


@pytest.fixture
def url(prepared: str) -> Iterator[str]:
    yield prepared
    empty(prepared)


@pytest.fixture
async def world(url: str) -> AsyncIterator[DbosWorld]:
    async with DbosWorld.on(url) as world:
        yield world


class TestPositions(PositionsContract):
    """See `PositionsContract`."""


class TestSteps(StepsContract):
    """See `StepsContract`."""

    async def test_dispatched_step_waits_for_absent_worker(self, world: EngineWorld) -> None:
        """LACKS["serve after open"]: the step waits until a worker starts that serves its group."""
        worker = await world.worker(bodies={"flow": dispatching(ONCE)})
        await worker.start()
        await world.until(EngineStatus.RUNNING)
        assert await world.history() == []
        await worker.close()
        await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": Tool()})

        assert await world.output() == {"value": {"done": "step"}}


class TestWaits(WaitsContract):
    """See `WaitsContract`."""


class TestChildren(ChildrenContract):
    """See `ChildrenContract`."""


class TestCancel(CancelContract):
    """See `CancelContract`."""

    async def test_cancel_stops_a_repeatable_step_at_once(self, world: EngineWorld) -> None:
        """LACKS["a body sees its step's cancel"]: the model call is told and stops; the body is out of memory."""
        asked = asyncio.Event()

        async def model(task: JsonObject, info: TaskInfo) -> Json:
            stop = asyncio.Event()
            info.on_cancel(stop.set)
            asked.set()
            await stop.wait()
            raise ConnectionError("aborted")

        worker = await world.worker(bodies={"flow": dispatching(Retry(attempts=3))}, handlers={"tools": model})
        await worker.start()
        await asked.wait()
        await worker.cancel()
        await world.until(EngineStatus.CANCELLED)

        assert [entry.state for entry in await world.history()] == ["started"]

    async def test_compensating_cancel_is_refused(self, world: EngineWorld) -> None:
        """LACKS["compensating cancel"]: said at once, and the run goes on as if nobody had asked."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()

        with pytest.raises(ConfigurationError, match="no compensating cancel"):
            await worker.cancel(compensate=True)
        assert (await world.run()).status is EngineStatus.SUSPENDED


class TestPatches(PatchesContract):
    """See `PatchesContract`."""


class TestRecovery(RecoveryContract):
    """See `RecoveryContract`."""

    async def test_a_child_inherits_the_namespace_of_its_parent(self, world: EngineWorld) -> None:
        """LACKS["a worker for all namespaces"]: driven by a worker of the namespace."""
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": leaf}, namespace="red")
        await worker.start()
        await world.output()

        assert (await world.run("child")).namespace == "red"

    async def test_drain_ends_by_force_what_does_not_end(self, world: EngineWorld) -> None:
        """LACKS["pending after a forced drain"]: an action that is cut off is in doubt, as everywhere."""
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        draining = asyncio.create_task(worker.close())
        await asyncio.sleep(0)
        world.clock.advance(timedelta(minutes=5))
        await draining
        again = Tool()
        await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": again})

        output = await world.output()
        assert isinstance(output, dict)
        assert output["in_doubt"] == "step"
        assert again.calls == []
