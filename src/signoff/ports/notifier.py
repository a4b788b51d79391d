"""Telling people that something waits for them."""

from dataclasses import dataclass
from typing import Protocol

from signoff.domain.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What is told about a card.

    `kind` is "requested", "reminded", "widened" or "settled". `id` is the same on every attempt to deliver it.
    `payload` holds names and ids (``toolCallId``, ``toolName``, ``runId``, ``threadId``, ``approver``,
    ``requester``, ``agent``, ``at``), where known ``title``, ``reason``, ``expiresAt``, ``inDoubt``; of a rung
    ``rung`` and ``role``; of the end ``status``; and with decision links ``links``: ``[{actor, url}]``. Never the
    arguments: they stay behind the inbox and the links. Notifications may arrive in another order than they were
    made; ``at`` tells it.
    """

    id: str
    kind: str
    tenant: str
    call_id: str
    payload: JsonObject


class Notifier(Protocol):
    """Delivers notifications; called again with backoff until it returns. One entry in the outbox each."""

    async def notify(self, notification: Notification) -> None:
        """Deliver it. Raising means: try again later."""
        ...
