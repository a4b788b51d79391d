"""The engine contract, over the embedded engine on SQLite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.engine.contract_cancel import CancelContract, CompensatingCancelContract
from tests.conformance.engine.contract_children import ChildrenContract
from tests.conformance.engine.contract_patches import PatchesContract
from tests.conformance.engine.contract_positions import PositionsContract
from tests.conformance.engine.contract_recovery import RecoveryContract
from tests.conformance.engine.contract_steps import StepsContract
from tests.conformance.engine.contract_waits import WaitsContract
from tests.conformance.engine.world import EmbeddedWorld, sqlite_url


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EmbeddedWorld]:
    async with EmbeddedWorld.on(sqlite_url(tmp_path)) as world:
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


class TestCompensatingCancel(CompensatingCancelContract):
    """See `CompensatingCancelContract`."""


class TestPatches(PatchesContract):
    """See `PatchesContract`."""


class TestRecovery(RecoveryContract):
    """See `RecoveryContract`."""
