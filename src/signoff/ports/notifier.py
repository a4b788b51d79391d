"""Telling people that something waits for them."""

from dataclasses import dataclass
from typing import Protocol

from signoff.domain.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """`kind` is "requested", "reminded", "widened" or "settled". `id` is the same on every attempt to deliver it."""

    id: str
    kind: str
    tenant: str
    call_id: str
    payload: JsonObject


class Notifier(Protocol):
    """Delivers notifications; called again with backoff until it returns."""

    async def notify(self, notification: Notification) -> None:
        """Deliver it. Raising means: try again later."""
        ...
