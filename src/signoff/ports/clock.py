"""Time, so that tests can own it and a replay reads the same one."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


class Timer(Protocol):
    """A wake-up that was asked for."""

    def cancel(self) -> None:
        """Forget it; harmless when it has fired."""
        ...


class Clock(Protocol):
    """The wall clock, and wake-ups by it."""

    def now(self) -> datetime:
        """The current instant, aware UTC."""
        ...

    def call_at(self, when: datetime, callback: Callable[[], None]) -> Timer:
        """Call `callback` in the running event loop once `now()` has reached `when` (at once if it has)."""
        ...

    async def sleep_until(self, when: datetime) -> None:
        """Return once `now()` has reached `when`."""
        ...
