"""Diagnostics: what happened, for whoever subscribes. Metadata only, never prompt or output text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from signoff.domain.jsonvalue import Json, JsonObject


class EventName(StrEnum):
    """The events (WIRE section 10)."""

    RUN_STARTED = "run.started"
    MESSAGE = "message"
    TOOL_CALL = "tool-call"
    DELEGATED = "delegated"
    TOOL_RETRY = "tool.retry"
    QUOTA_EXCEEDED = "quota.exceeded"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_ESCALATED = "approval.escalated"
    APPROVAL_SETTLED = "approval.settled"
    NOTIFICATION_FAILED = "notification.failed"
    RUN_FAILED = "run.failed"
    RUN_FINISHED = "run.finished"
    ENGINE_FALLBACK = "engine.fallback"
    RUN_SET_ASIDE = "run.set_aside"
    SINK_IN_PROCESS = "sink.in_process"
    SINK_LOST = "sink.lost"
    SINK_RESTORED = "sink.restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event. `data` holds names, ids, counts and durations (`*_ms`); `at` is aware UTC."""

    name: EventName
    at: datetime
    run_id: str | None = None
    thread_id: str | None = None
    data: JsonObject = field(default_factory=dict)


Subscriber: TypeAlias = Callable[[Event], None]


class EventBus(Protocol):
    """Where events are told, and heard."""

    def emit(self, name: EventName, *, run_id: str | None = None, thread_id: str | None = None, **data: Json) -> None:
        """Tell the subscribers now."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with every event from now on."""
        ...
