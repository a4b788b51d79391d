"""The real clock and real randomness."""

import asyncio
import random  # noqa: TID251  # the one place where randomness comes from
import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from signoff.ports.clock import Timer

#: Timers are re-armed at least this often, so that a changed wall clock (NTP, suspend) is noticed.
_TIMER_MAX_S = 60.0


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """The current instant, aware UTC."""
        return datetime.now(UTC)  # noqa: TID251  # the one place where the time comes from

    def call_at(self, when: datetime, callback: Callable[[], None]) -> Timer:
        """See `ports.clock.Clock`."""
        return _WallTimer(self, when, callback)

    async def sleep_until(self, when: datetime) -> None:
        """See `ports.clock.Clock`."""
        while (left := (when - self.now()).total_seconds()) > 0:  # noqa: ASYNC110  # waits for time itself
            await asyncio.sleep(min(left, _TIMER_MAX_S))


class _WallTimer:
    def __init__(self, clock: SystemClock, when: datetime, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._when = when
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._arm()

    def cancel(self) -> None:
        self._handle.cancel()

    def _arm(self) -> None:
        left = (self._when - self._clock.now()).total_seconds()
        self._handle = self._loop.call_later(min(max(left, 0.0), _TIMER_MAX_S), self._fire)

    def _fire(self) -> None:
        if self._clock.now() < self._when:
            self._arm()
        else:
            self._callback()


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case


class SystemIds:
    """Ids of 48 bits of milliseconds and 80 random bits; later ids of one process always sort later."""

    def __init__(self, clock: SystemClock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last = 0

    def new(self, prefix: str) -> str:
        """See `ports.ids.Ids`."""
        milliseconds = int(self._clock.now().timestamp() * 1000)
        value = (milliseconds << 80) | secrets.randbits(80)
        with self._lock:
            value = max(value, self._last + 1)
            self._last = value
        digits = []
        for _ in range(26):
            value, digit = divmod(value, 32)
            digits.append(_ALPHABET[digit])
        return f"{prefix}_{''.join(reversed(digits))}"

    def secret(self) -> str:
        """See `ports.ids.Ids`."""
        return secrets.token_urlsafe(32)

    def jitter(self) -> float:
        """See `ports.ids.Ids`."""
        return random.random()  # noqa: S311  # spreads retries, guards nothing
