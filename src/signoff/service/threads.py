"""Read and keep threads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from signoff.domain.actor import Actor
from signoff.domain.call import LIVE, Call, CallStatus
from signoff.domain.thread import Message, Thread
from signoff.errors import ConfigurationError, InvalidInput, NotFound, RunActive
from signoff.ports.store import ThreadChanges, Tx
from signoff.service.deps import Deps
from signoff.service.owned import owned_thread
from signoff.service.read import count_votes
from signoff.turn.history import by_message


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadView:
    """A thread with its messages (oldest first) and their calls, keyed by message id.

    Behind a delegating call stand the calls of its sub-agent, whose `parent_call_id` is that call. `votes` counts
    the yeses on each open card that needs more than one.
    """

    thread: Thread
    messages: Sequence[Message]
    calls: dict[str, list[Call]]
    votes: dict[str, int] = field(default_factory=dict)


async def list_threads(deps: Deps, actor: Actor) -> list[Thread]:
    """The actor's kept threads, last updated first."""
    return await deps.store.read(lambda tx: tx.threads_of(actor_id=actor.id, tenant=actor.tenant))


async def get_thread(deps: Deps, actor: Actor, thread_id: str) -> ThreadView:
    """Raises `NotFound`, `Forbidden`."""

    def look(tx: Tx) -> ThreadView:
        thread = owned_thread(tx, actor, thread_id)
        calls = {
            message_id: [each for call in step for each in _with_nested(tx, call, thread_id)]
            for message_id, step in by_message(tx.calls_of_thread(thread_id)).items()
        }
        return ThreadView(
            thread=thread,
            messages=tx.messages_of(thread_id),
            calls=calls,
            votes=count_votes(tx, [call for step in calls.values() for call in step if call.is_open]),
        )

    return await deps.store.read(look)


def _with_nested(tx: Tx, call: Call, thread_id: str) -> Iterator[Call]:
    """The call, then what its sub-agent called, however deep: rows of threads that nobody opens."""
    yield call
    for nested in _nested(tx, call, thread_id):
        # In a copied conversation the delegating call has an id of its own.
        yield from _with_nested(tx, replace(nested, parent_call_id=call.id), thread_id)


def _nested(tx: Tx, call: Call, thread_id: str) -> list[Call]:
    """A sub-agent's calls; a detached one's only until its work has arrived in the conversation as messages."""
    if call.child_run_id is None:
        return []
    return [nested for nested in tx.calls_of_run(call.child_run_id) if nested.thread_id != thread_id]


async def check_thread(deps: Deps, actor: Actor, thread_id: str) -> None:
    """Whether the thread is there and the actor's own. Raises `NotFound`, `Forbidden`."""
    await deps.store.read(lambda tx: owned_thread(tx, actor, thread_id))


async def change_thread(deps: Deps, actor: Actor, thread_id: str, changes: ThreadChanges) -> None:
    """Title (1-200 characters), default agent, model, persona. Raises `InvalidInput`, `NotFound`, `Forbidden`."""

    def write(tx: Tx) -> None:
        thread = owned_thread(tx, actor, thread_id)
        _check_changes(deps, thread, changes)
        tx.change_thread(thread_id, **changes)

    await deps.store.transact("thread:change", write)


async def delete_thread(deps: Deps, actor: Actor, thread_id: str) -> None:
    """Soft: afterwards unlisted and unknown; a run that is active is cancelled. Raises `NotFound`, `Forbidden`."""

    def write(tx: Tx) -> None:
        thread = owned_thread(tx, actor, thread_id)
        tx.change_thread(thread_id, deleted_at=deps.clock.now())
        if thread.active_run_id is not None:
            deps.runner.cancel(tx, thread.active_run_id)

    await deps.store.transact("thread:delete", write)


async def fork_thread(deps: Deps, actor: Actor, thread_id: str, message_id: str) -> Thread:
    """A copy up to and including the message; calls still open in it are copied as never completed.

    Raises `NotFound`, `Forbidden`.
    """
    fork_id = deps.ids.new("thread")

    def write(tx: Tx) -> Thread:
        thread = owned_thread(tx, actor, thread_id)
        last = _message_of(tx, thread, message_id)
        now = deps.clock.now()
        fork = replace(thread, id=fork_id, active_run_id=None, created_at=now, updated_at=now, transient=False)
        tx.insert_thread(fork)
        calls = by_message(tx.calls_of_thread(thread_id))
        for message in tx.messages_of(thread_id):
            if message.seq > last.seq:
                break
            copied = tx.insert_message(replace(message, id=deps.ids.new("msg"), thread_id=fork_id, run_id=None))
            for call in calls.get(message.id, ()):
                child_run_id = call.child_run_id if call.status not in LIVE and _nested(tx, call, thread_id) else None
                same = replace(call, child_run_id=child_run_id)
                tx.insert_call(_copied_call(same, copied, deps.ids.new("call")))
        return fork

    return await deps.store.transact("thread:fork", write)


async def truncate_thread(deps: Deps, actor: Actor, thread_id: str, message_id: str) -> None:
    """Delete the message and everything after it. Raises `NotFound`, `Forbidden`, `RunActive`."""

    def write(tx: Tx) -> None:
        thread = owned_thread(tx, actor, thread_id)
        message = _message_of(tx, thread, message_id)
        if thread.active_run_id is not None:
            raise RunActive(thread_id, thread.active_run_id)
        tx.delete_messages(thread_id, from_seq=message.seq)
        tx.change_thread(thread_id, updated_at=deps.clock.now())

    await deps.store.transact("thread:truncate", write)


async def promote_thread(deps: Deps, actor: Actor, thread_id: str) -> None:
    """A transient thread becomes a kept one. Raises `NotFound`, `Forbidden`."""

    def write(tx: Tx) -> None:
        owned_thread(tx, actor, thread_id)
        tx.change_thread(thread_id, transient=False, updated_at=deps.clock.now())

    await deps.store.transact("thread:promote", write)


def _message_of(tx: Tx, thread: Thread, message_id: str) -> Message:
    message = tx.message(message_id)
    if message is None or message.thread_id != thread.id:
        raise NotFound("message", message_id)
    return message


def _copied_call(call: Call, message: Message, call_id: str) -> Call:
    """A copy that belongs to no run: whatever was open in the original can't be decided in the copy."""
    copied = replace(call, id=call_id, thread_id=message.thread_id, message_id=message.id, run_id=f"copy:{call.run_id}")
    if call.status in LIVE:
        return replace(copied, status=CallStatus.FAILED, error="never completed", output={"error": "never completed"})
    return copied


def _check_changes(deps: Deps, thread: Thread, changes: ThreadChanges) -> None:
    title = changes.get("title")
    if title is not None and not 1 <= len(title.strip()) <= deps.limits.title_max:
        raise InvalidInput(f"title must have 1-{deps.limits.title_max} characters", field="title")
    agent_name = changes.get("default_agent")
    if agent_name is not None and deps.agents.get(agent_name) is None:
        raise InvalidInput(
            f"there is no agent {agent_name!r}; there are {', '.join(deps.agents.names)}", field="defaultAgent"
        )
    model = changes.get("model")
    if model is not None:
        try:
            deps.models.model(model)
        except ConfigurationError as error:
            raise InvalidInput(f"model {model!r} cannot be used: {error}", field="model") from error
    persona = changes.get("persona")
    if persona is not None:
        name = agent_name or thread.default_agent
        agent = (deps.agents.get(name) if name is not None else None) or deps.agents.default
        if agent.persona(persona) is None:
            raise InvalidInput(f"agent {agent.name!r} has no persona {persona!r}", field="persona")
