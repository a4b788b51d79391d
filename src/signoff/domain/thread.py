"""Conversations and what was said in them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from signoff.domain.jsonvalue import JsonObject


class Role(StrEnum):
    """Who speaks in a message."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation, owned by one actor; `active_run_id` names the one run that holds it, if any.

    `model` and `persona` are the thread's own choice, `default_agent` the agent a message without one goes to.
    `transient` threads (a sub-agent's, a throw-away chat) are not listed. Instants are aware UTC.
    """

    id: str
    actor_id: str
    tenant: str = ""
    title: str = ""
    transient: bool = False
    created_at: datetime
    updated_at: datetime
    default_agent: str | None = None
    model: str | None = None
    persona: str | None = None
    active_run_id: str | None = None
    last_message_preview: str | None = None
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One row of a thread: a user's message, or one model step (`run_id` and `step` say which).

    `seq` orders the thread and is given by the store. The calls of a step are `Call` rows that name this message.
    `usage` is the wire's usage object with `costUsd` (WIRE 6.3), or None.
    """

    id: str
    thread_id: str
    seq: int = 0
    role: Role
    content: str
    run_id: str | None = None
    step: int | None = None
    agent_name: str | None = None
    reasoning: str | None = None
    usage: JsonObject | None = None
    metadata: JsonObject | None = None
    created_at: datetime
