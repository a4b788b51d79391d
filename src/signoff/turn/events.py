"""Hands diagnostics to subscribers; a failing one harms nothing."""

import logging
from collections.abc import Iterable

from signoff.domain.jsonvalue import Json
from signoff.ports.clock import Clock
from signoff.ports.events import Event, EventName, Subscriber
from signoff.ports.store import Tx

_log = logging.getLogger("signoff.events")


class Events:
    """The subscribers, and the two ways to reach them."""

    def __init__(self, clock: Clock, subscribers: Iterable[Subscriber] = ()) -> None:
        self._clock = clock
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with every event from now on."""
        self._subscribers.append(subscriber)

    def emit(self, name: EventName, *, run_id: str | None = None, thread_id: str | None = None, **data: Json) -> None:
        """Tell the subscribers now."""
        event = Event(name=name, at=self._clock.now(), run_id=run_id, thread_id=thread_id, data=data)
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # noqa: BLE001  # a subscriber is a guest: it must not break its host
                _log.exception("a subscriber failed on %s", name)

    def emit_on_commit(
        self, tx: Tx, name: EventName, *, run_id: str | None = None, thread_id: str | None = None, **data: Json
    ) -> None:
        """Tell them once `tx` is committed: what a replay reads from its journal is not told again."""
        if self._subscribers:
            tx.on_commit(lambda: self.emit(name, run_id=run_id, thread_id=thread_id, **data))
