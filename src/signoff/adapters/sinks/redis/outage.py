"""Redis is away, and comes back: said once each time."""

import logging

from redis.exceptions import RedisError

from signoff.ports.events import EventBus, EventName

logger = logging.getLogger("signoff.sink")

#: What Redis, the network and a closed socket raise.
TROUBLE = (RedisError, OSError)

_PAUSE_MIN_S = 0.1
_PAUSE_MAX_S = 2.0


class Outage:
    """What one side of the sink ("publish", "read") knows of Redis."""

    def __init__(self, side: str, events: EventBus) -> None:
        self._side = side
        self._events = events
        self._since_tries = 0

    def begin(self, error: Exception) -> float:
        """It failed; returns how long to wait before the next try, in seconds."""
        if self._since_tries == 0:
            logger.warning(
                "Redis is away (%s: %s: %s): streams are served from the database until it is back",
                self._side,
                type(error).__name__,
                error,
            )
            self._events.emit(EventName.SINK_LOST, side=self._side, error_type=type(error).__name__)
        pause = min(_PAUSE_MIN_S * 2**self._since_tries, _PAUSE_MAX_S)
        self._since_tries += 1
        return float(pause)

    def end(self) -> None:
        """It worked."""
        if self._since_tries:
            self._since_tries = 0
            logger.warning("Redis is back (%s)", self._side)
            self._events.emit(EventName.SINK_RESTORED, side=self._side)
