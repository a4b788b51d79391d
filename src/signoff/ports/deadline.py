"""Running users' code within a time limit that the clock port measures."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import TypeVar

from signoff.ports.clock import Clock

T = TypeVar("T")


class LimitPassed(Exception):
    """The work did not end within its limit and was cancelled."""

    def __init__(self, limit: timedelta) -> None:
        super().__init__(f"not done after {limit.total_seconds():g} s")
        self.limit = limit


class StoppedItself(Exception):
    """The work raised `CancelledError` or `SystemExit` of its own: an outcome of the work, not of its caller."""


async def run_within(work: Coroutine[object, object, T], *, limit: timedelta | None, clock: Clock) -> T:
    """Run `work` as a task of its own and return its result.

    A cancellation of the caller cancels the work, waits for it to clean up, and propagates. A function that
    runs in a thread cannot be stopped: it runs on and its result is dropped.

    Raises:
        LimitPassed: see there. Work that swallows its cancellation and returns still counts as done.
        StoppedItself: see there.
    """
    task = asyncio.create_task(_without_exit(work))
    # A task that is cancelled before its first step never reaches `work`, and nobody else would close it.
    task.add_done_callback(lambda _: work.close())
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = task.cancel()

    timer = clock.call_at(clock.now() + limit, expire) if limit is not None else None
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        _mark_seen(task)
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if task.cancelled():
        if expired and limit is not None:
            raise LimitPassed(limit)
        raise StoppedItself("it cancelled itself")
    return task.result()


async def _without_exit(work: Coroutine[object, object, T]) -> T:
    # The event loop lets a task's SystemExit end the whole process.
    try:
        return await work
    except SystemExit as error:
        raise StoppedItself(f"it called sys.exit({error.code!r})") from error


def _mark_seen(task: "asyncio.Task[T]") -> None:
    # asyncio logs exceptions nobody looked at; this one is superseded by our own cancellation.
    if not task.cancelled():
        task.exception()
