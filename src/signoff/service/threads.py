"""Read and keep threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from signoff.domain.actor import Actor
from signoff.domain.call import Call
from signoff.domain.thread import Message, Thread
from signoff.ports.store import ThreadChanges
from signoff.service.deps import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadView:
    """A thread with its messages (oldest first) and their calls, keyed by message id."""

    thread: Thread
    messages: Sequence[Message]
    calls: dict[str, list[Call]]


async def list_threads(deps: Deps, actor: Actor) -> list[Thread]:
    """The actor's kept threads, last updated first."""
    raise NotImplementedError


async def get_thread(deps: Deps, actor: Actor, thread_id: str) -> ThreadView:
    """Raises `NotFound`, `Forbidden`."""
    raise NotImplementedError


async def change_thread(deps: Deps, actor: Actor, thread_id: str, changes: ThreadChanges) -> None:
    """Title (1-200 characters), default agent, model, persona. Raises `InvalidInput`, `NotFound`, `Forbidden`."""
    raise NotImplementedError


async def delete_thread(deps: Deps, actor: Actor, thread_id: str) -> None:
    """Soft: afterwards unlisted and unknown; a run that is active is cancelled. Raises `NotFound`, `Forbidden`."""
    raise NotImplementedError


async def fork_thread(deps: Deps, actor: Actor, thread_id: str, message_id: str) -> Thread:
    """A copy up to and including the message. Raises `NotFound`, `Forbidden`."""
    raise NotImplementedError


async def truncate_thread(deps: Deps, actor: Actor, thread_id: str, message_id: str) -> None:
    """Delete the message and everything after it. Raises `NotFound`, `Forbidden`, `RunActive`."""
    raise NotImplementedError


async def promote_thread(deps: Deps, actor: Actor, thread_id: str) -> None:
    """A transient thread becomes a kept one. Raises `NotFound`, `Forbidden`."""
    raise NotImplementedError
