"""What depends on locks in the embedded engine, on PostgreSQL, where transactions run side by side."""

from collections.abc import AsyncIterator

import pytest

from tests.conformance.engine.contract_cancel import CancelContract, CompensatingCancelContract
from tests.conformance.engine.contract_recovery import RecoveryContract
from tests.conformance.engine.contract_waits import WaitsContract
from tests.conformance.engine.world import EmbeddedWorld
from tests.services import postgres_schema

pytestmark = pytest.mark.postgres


@pytest.fixture
async def world() -> AsyncIterator[EmbeddedWorld]:
    with postgres_schema("embedded") as url:
        async with EmbeddedWorld.on(url) as world:
            yield world


class TestWaits(WaitsContract):
    """See `WaitsContract`."""


class TestCancel(CancelContract):
    """See `CancelContract`."""


class TestCompensatingCancel(CompensatingCancelContract):
    """See `CompensatingCancelContract`."""


class TestRecovery(RecoveryContract):
    """See `RecoveryContract`."""
