"""Work that comes round: a worker's beat, its sweeps, its polls, and the timer of the earliest deadline."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta

from signoff.errors import StoreBusy
from signoff.ports.clock import Clock, Timer
from signoff.ports.engine import EngineLimits

logger = logging.getLogger(__name__)

#: How soon another process' start, signal or cancel is noticed. One read of an index each time.
POLL = timedelta(seconds=1)
#: How soon what a busy store refused is tried again.
AGAIN = timedelta(seconds=1)


class Rounds(ABC):
    """The periodic work of one engine. Everything in it may be repeated, and done by several processes."""

    def __init__(self, clock: Clock, limits: EngineLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._renewing: asyncio.Task[None] | None = None
        self._looking: set[asyncio.Task[object]] = set()
        self._timer: Timer | None = None
        self._due_at: datetime | None = None
        self._open = False

    @abstractmethod
    async def _renew(self) -> None:
        """Every half a lease: say that this worker lives."""

    @abstractmethod
    async def _sweep(self) -> None:
        """Find what a crash left."""

    @abstractmethod
    async def _poll(self) -> None:
        """Hear of what other processes did."""

    @abstractmethod
    async def _wake_due(self) -> None:
        """A deadline has come: wake who waited for it, and `arm` the next one."""

    def open(self) -> None:
        """Begin; the first look is at once, but not awaited here."""
        self._open = True
        limits = self._limits
        self._renewing = asyncio.create_task(self._every(limits.lease / 2, self._renew, at_once=False))
        self._look(self._every(limits.sweep, self._sweep, at_once=True))
        self._look(self._every(min(POLL, limits.sweep), self._poll, at_once=True))

    async def stop_looking(self) -> None:
        """Find no more work; leases are still renewed."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        await _cancel(self._looking)

    async def close(self) -> None:
        """Stop."""
        await self.stop_looking()
        if self._renewing is not None:
            await _cancel({self._renewing})

    def arm(self, when: datetime) -> None:
        """A run waits until `when`. One timer serves the earliest deadline of all."""
        if not self._open or (self._due_at is not None and self._due_at <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_at = when
        self._timer = self._clock.call_at(when, self._deadline_has_come)

    def _deadline_has_come(self) -> None:
        self._due_at = None
        self._look(self._careful(self._wake_due))

    async def _every(self, interval: timedelta, work: Callable[[], Awaitable[None]], *, at_once: bool) -> None:
        clock = self._clock
        if not at_once:
            await clock.sleep_until(clock.now() + interval)
        while True:
            # From now, not from the end: what takes long must not come late as well.
            due = clock.now() + interval
            if not await self._careful(work):
                due = min(due, clock.now() + AGAIN)
            await clock.sleep_until(due)

    async def _careful(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Nothing that goes wrong once may stop the looking. False: try again soon."""
        try:
            await work()
        except StoreBusy as busy:
            logger.warning("the engine's sweep was refused: %s", busy)
            return False
        except Exception:
            logger.exception("the engine's sweep failed")
            return False
        return True

    def _look(self, work: Coroutine[object, object, object]) -> None:
        # The work itself, not a wrapper around it: a task that is stopped before it began closes what it was given.
        task = asyncio.get_running_loop().create_task(work)
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)


async def _cancel(tasks: Iterable[asyncio.Task[object]] | Iterable[asyncio.Task[None]]) -> None:
    waiting = set(tasks)
    for task in waiting:
        task.cancel()
    if waiting:
        await asyncio.wait(waiting)
