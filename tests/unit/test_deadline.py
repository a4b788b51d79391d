"""Users' code within a time limit."""

import asyncio
import inspect
from datetime import timedelta

import pytest

from signoff.ports.deadline import run_within
from signoff.testing.clock import FakeClock


async def test_work_that_was_cancelled_before_it_began_is_closed() -> None:
    """Otherwise Python warns that it was never awaited; warnings are errors here."""
    begun = False

    async def work() -> None:
        nonlocal begun
        begun = True

    coroutine = work()
    waiting = asyncio.ensure_future(run_within(coroutine, limit=timedelta(seconds=1), clock=FakeClock()))
    await asyncio.sleep(0)  # it has made the task of the work, which has not taken its first step
    waiting.cancel()
    for task in asyncio.all_tasks() - {asyncio.current_task(), waiting}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert not begun
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
