"""The engine contract, over DBOS on PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.conformance.engine.contract_cancel import CancelContract
from tests.conformance.engine.contract_children import ChildrenContract
from tests.conformance.engine.contract_patches import PatchesContract
from tests.conformance.engine.contract_positions import PositionsContract
from tests.conformance.engine.contract_recovery import RecoveryContract
from tests.conformance.engine.contract_steps import StepsContract
from tests.conformance.engine.contract_waits import WaitsContract
from tests.conformance.engine.dbos_world import DbosWorld, database, prepare

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def template() -> Iterator[str]:
    with database() as url:
        asyncio.run(prepare(url))
        yield url


@pytest.fixture
async def world(template: str) -> AsyncIterator[DbosWorld]:
    with database(template) as url:
        async with DbosWorld.on(url) as world:
            yield world


class TestPositions(PositionsContract):
    """See `PositionsContract`."""


class TestSteps(StepsContract):
    """See `StepsContract`."""


class TestWaits(WaitsContract):
    """See `WaitsContract`."""


class TestChildren(ChildrenContract):
    """See `ChildrenContract`."""


class TestCancel(CancelContract):
    """See `CancelContract`."""


class TestPatches(PatchesContract):
    """See `PatchesContract`."""


class TestRecovery(RecoveryContract):
    """See `RecoveryContract`."""
