"""Say something in a thread: the admission of a turn."""

from dataclasses import dataclass

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import JsonObject
from signoff.service.deps import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """What a user sends (WIRE 2.1).

    `new_thread_id` creates the thread under that id if there is no such thread (AG-UI); `thread_id` must exist.
    """

    message: str = ""
    thread_id: str | None = None
    new_thread_id: str | None = None
    agent: str | None = None
    persona: str | None = None
    model: str | None = None
    page_context: JsonObject | None = None
    regenerate: bool = False
    transient: bool = False
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run that answers. `repeated`: the idempotency key was used before and this is that run."""

    run_id: str
    thread_id: str
    repeated: bool = False


async def send(deps: Deps, actor: Actor, request: SendRequest) -> Started:
    """Admit a turn: key, ownership, quota, thread claim, user message and run row in one transaction.

    Raises:
        InvalidInput: empty message, over-long field, unknown agent, model or persona (names the field).
        NotFound: no such thread.
        Forbidden: somebody else's thread.
        RunActive: the thread is busy; nothing was written.
        QuotaExceeded: before any work.
        IdempotencyMismatch: the key was used with another body.
    """
    raise NotImplementedError
