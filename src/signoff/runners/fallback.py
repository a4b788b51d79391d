"""Durable if it can be, inline if it must be, and loud about it (C57)."""

import logging

from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Run
from signoff.errors import EngineUnavailable
from signoff.ports.engine import SignalOutcome
from signoff.ports.events import EventName
from signoff.ports.runner import Runner
from signoff.ports.store import Tx
from signoff.turn.events import Events

_log = logging.getLogger("signoff.runner")


class FallbackRunner:
    """Hands everything to `preferred`, or to `substitute` when `preferred` could not start.

    With `strict` there is no substitute: opening raises `EngineUnavailable`.
    """

    def __init__(self, preferred: Runner, substitute: Runner, *, strict: bool, events: Events) -> None:
        self._preferred = preferred
        self._substitute = substitute
        self._strict = strict
        self._events = events
        self._active = preferred

    @property
    def durable(self) -> bool:
        """Whether runs survive this process."""
        return self._active.durable

    async def open(self) -> None:
        """Start the preferred runner, or the substitute.

        Raises:
            EngineUnavailable: strict, and the preferred one cannot start.
        """
        try:
            await self._preferred.open()
        except Exception as error:
            if self._strict:
                raise EngineUnavailable(f"the durable engine could not start: {error}") from error
            _log.warning(
                "THE DURABLE ENGINE COULD NOT START (%s: %s). Runs are NOT durable: a restart loses them.",
                type(error).__name__,
                error,
            )
            self._events.emit(EventName.ENGINE_FALLBACK, error_type=type(error).__name__)
            self._active = self._substitute
            await self._substitute.open()

    async def close(self) -> None:
        """See `ports.runner.Runner`."""
        await self._active.close()

    def start(self, tx: Tx, run: Run) -> None:
        """See `ports.runner.Runner`."""
        self._active.start(tx, run)

    def signal(self, tx: Tx, run_id: str, name: str, payload: JsonObject, *, dedup_key: str) -> SignalOutcome:
        """See `ports.runner.Runner`."""
        return self._active.signal(tx, run_id, name, payload, dedup_key=dedup_key)

    def cancel(self, tx: Tx, run_id: str) -> bool:
        """See `ports.runner.Runner`."""
        return self._active.cancel(tx, run_id)
