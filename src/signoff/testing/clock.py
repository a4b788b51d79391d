"""Time and ids that a test owns."""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until the test moves it. Use it from one event loop."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._timers: list[tuple[datetime, int, FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """The instant the test has set, aware UTC."""
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move time on; due timers fire at once, in order of their time."""
        target = self._now + by
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            timer.fire()
        self._now = target

    @property
    def next_at(self) -> datetime | None:
        """When the next timer is due; None if nobody waits for time."""
        while self._timers and not self._timers[0][2].is_pending:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def call_at(self, when: datetime, callback: Callable[[], None]) -> "FakeTimer":
        """See `ports.clock.Clock`; a time that has come already fires in the next turn of the event loop."""
        timer = FakeTimer(callback)
        if when <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
        else:
            heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    async def sleep_until(self, when: datetime) -> None:
        """Return once the test has moved the clock to `when`."""
        if when <= self._now:
            return
        reached = asyncio.Event()
        timer = self.call_at(when, reached.set)
        try:
            await reached.wait()
        finally:
            timer.cancel()


class FakeTimer:
    """A wake-up of a `FakeClock`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    @property
    def is_pending(self) -> bool:
        """Whether it was neither cancelled nor fired."""
        return self._callback is not None

    def cancel(self) -> None:
        """Forget it."""
        self._callback = None

    def fire(self) -> None:
        """Call back, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class FakeIds:
    """Ids that count from one, so that a failing test prints the same ids each time."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = itertools.count(start)
        self._lock = threading.Lock()

    def new(self, prefix: str) -> str:
        """``<prefix>_000001``, ``<prefix>_000002``, …"""
        with self._lock:
            return f"{prefix}_{next(self._numbers):06d}"

    def secret(self) -> str:
        """Not secret at all."""
        return self.new("secret")

    def jitter(self) -> float:
        """No jitter: the whole wait."""
        return 1.0 - 2**-53
