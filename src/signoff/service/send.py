"""Say something in a thread: the admission of a turn."""

from dataclasses import dataclass
from datetime import datetime

from signoff.agents.agent import Agent
from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import JsonObject, digest, normalise
from signoff.domain.run import Run
from signoff.domain.thread import Message, Role, Thread
from signoff.errors import (
    ConfigurationError,
    Forbidden,
    IdempotencyMismatch,
    InvalidInput,
    QuotaExceeded,
    RunActive,
)
from signoff.ports.events import EventName
from signoff.ports.store import IdempotencyRecord, Tx
from signoff.service.deps import Deps
from signoff.service.owned import owned_thread
from signoff.turn.input import TurnInput

PREVIEW_LENGTH = 140
ID_LENGTH_MAX = 255


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
    _check(deps, request)
    if request.idempotency_key is not None:
        earlier = await deps.store.peek(lambda tx: _earlier(tx, actor, request))
        if earlier is not None:
            return earlier
    # Ids are made here, not in the transaction: its work may run again after a deadlock.
    fresh = _Fresh(run_id=deps.ids.new("run"), thread_id=deps.ids.new("thread"), message_id=deps.ids.new("msg"))
    try:
        return await deps.store.transact("send", lambda tx: _admit(deps, actor, request, fresh, tx))
    except QuotaExceeded as spent:
        deps.events.emit(EventName.QUOTA_EXCEEDED, period=spent.period)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fresh:
    run_id: str
    thread_id: str
    message_id: str


def _check(deps: Deps, request: SendRequest) -> None:
    """What can be refused without looking at a row."""
    if request.regenerate:
        if request.thread_id is None:
            raise InvalidInput("regenerate needs threadId", field="threadId", code="thread_required")
    elif not request.message.strip():
        raise InvalidInput("message must not be empty", field="message")
    if len(request.message) > deps.limits.message_max:
        raise InvalidInput(f"message has more than {deps.limits.message_max} characters", field="message")
    if request.new_thread_id is not None and not 1 <= len(request.new_thread_id) <= ID_LENGTH_MAX:
        raise InvalidInput(f"threadId must have 1-{ID_LENGTH_MAX} characters", field="threadId")
    if request.agent is not None and deps.agents.get(request.agent) is None:
        raise InvalidInput(
            f"there is no agent {request.agent!r}; there are {', '.join(deps.agents.names)}", field="agent"
        )
    if request.model is not None:
        try:
            deps.models.model(request.model)
        except ConfigurationError as error:
            raise InvalidInput(f"model {request.model!r} cannot be used: {error}", field="model") from error
    if request.page_context is not None:
        normalise(request.page_context, what="pageContext", bytes_max=deps.limits.page_context_bytes_max)


def _admit(deps: Deps, actor: Actor, request: SendRequest, fresh: _Fresh, tx: Tx) -> Started:
    """All or nothing: whoever is refused has changed no row."""
    now = deps.clock.now()
    earlier = _take_key(tx, actor, request, fresh, now)
    if earlier is not None:
        return earlier
    thread = _thread(actor, request, fresh, tx, now)
    agent = _agent(deps, request, thread)
    persona = request.persona or thread.persona
    if request.persona is not None and agent.persona(request.persona) is None:
        names = ", ".join(persona.name for persona in agent.personas) or "none"
        raise InvalidInput(f"agent {agent.name!r} has no persona {request.persona!r}; it has {names}", field="persona")
    if persona is not None and agent.persona(persona) is None:
        persona = None  # the thread's choice belongs to another agent
    _check_quota(deps, actor, tx, now)
    if not tx.claim_thread(thread.id, fresh.run_id):
        raise RunActive(thread.id, thread.active_run_id)
    if request.regenerate:
        _drop_last_answer(tx, thread)
    else:
        _keep_message(tx, thread, request, fresh, now)
    turn = TurnInput(
        run_id=fresh.run_id,
        thread_id=thread.id,
        stream_id=fresh.run_id,
        actor=actor,
        agent=agent.name,
        persona=persona,
        model=request.model,
        page_context=request.page_context,
        chain=(agent.name,),
    )
    run = Run(
        id=fresh.run_id,
        thread_id=thread.id,
        actor_id=actor.id,
        actor_roles=tuple(sorted(actor.roles)),
        tenant=actor.tenant,
        agent=agent.name,
        stream_id=fresh.run_id,
        durable=deps.runner.durable,
        input=turn.to_json(),
        fingerprint=agent.fingerprint(),
        created_at=now,
    )
    tx.insert_run(run)
    deps.runner.start(tx, run)
    return Started(run_id=run.id, thread_id=thread.id)


def _earlier(tx: Tx, actor: Actor, request: SendRequest) -> Started | None:
    """The run that the idempotency key led to before, if it was used with this body."""
    if request.idempotency_key is None:
        return None
    record = tx.key(actor_id=actor.id, tenant=actor.tenant, key=request.idempotency_key)
    return None if record is None else _repeated(record, request)


def _take_key(tx: Tx, actor: Actor, request: SendRequest, fresh: _Fresh, now: datetime) -> Started | None:
    """Make the idempotency key lead to this run, or find the run that it leads to.

    The first write of all: of two sends at once the second waits here, and has written nothing if it comes late.
    """
    if request.idempotency_key is None:
        return None
    taken = tx.put_key(
        IdempotencyRecord(
            actor_id=actor.id,
            tenant=actor.tenant,
            key=request.idempotency_key,
            body_digest=_body_digest(request),
            run_id=fresh.run_id,
            thread_id=request.thread_id or request.new_thread_id or fresh.thread_id,
            at=now,
        )
    )
    return None if taken is None else _repeated(taken, request)


def _repeated(record: IdempotencyRecord, request: SendRequest) -> Started:
    if record.body_digest != _body_digest(request):
        raise IdempotencyMismatch(record.key)
    return Started(run_id=record.run_id, thread_id=record.thread_id, repeated=True)


def _body_digest(request: SendRequest) -> str:
    return digest(
        {
            "message": request.message,
            "threadId": request.thread_id,
            "newThreadId": request.new_thread_id,
            "agent": request.agent,
            "persona": request.persona,
            "model": request.model,
            "pageContext": request.page_context,
            "regenerate": request.regenerate,
            "transient": request.transient,
        }
    )


def _thread(actor: Actor, request: SendRequest, fresh: _Fresh, tx: Tx, now: datetime) -> Thread:
    if request.thread_id is not None:
        return owned_thread(tx, actor, request.thread_id)
    new_id = request.new_thread_id or fresh.thread_id
    existing = None if request.new_thread_id is None else tx.thread(new_id)
    if existing is not None:
        if existing.deleted_at is not None:
            raise Forbidden("this conversation was deleted")
        return owned_thread(tx, actor, new_id)
    thread = Thread(
        id=new_id,
        actor_id=actor.id,
        tenant=actor.tenant,
        transient=request.transient,
        created_at=now,
        updated_at=now,
        default_agent=request.agent,
    )
    tx.insert_thread(thread)
    return thread


def _agent(deps: Deps, request: SendRequest, thread: Thread) -> Agent:
    name = request.agent or thread.default_agent
    return (deps.agents.get(name) if name is not None else None) or deps.agents.default


def _check_quota(deps: Deps, actor: Actor, tx: Tx, now: datetime) -> None:
    if deps.quota is None:
        return
    for window in deps.quota.windows(tx, actor, now):
        if window.is_spent:
            raise QuotaExceeded(period=window.period)


def _keep_message(tx: Tx, thread: Thread, request: SendRequest, fresh: _Fresh, now: datetime) -> None:
    tx.insert_message(
        Message(
            id=fresh.message_id,
            thread_id=thread.id,
            role=Role.USER,
            content=request.message,
            run_id=fresh.run_id,
            created_at=now,
        ),
        updated_at=now,
        last_message_preview=" ".join(request.message.split())[:PREVIEW_LENGTH],
    )


def _drop_last_answer(tx: Tx, thread: Thread) -> None:
    """Everything after the last user message goes; that message is answered again."""
    said = [message for message in tx.messages_of(thread.id) if message.role is Role.USER]
    if not said:
        raise InvalidInput("there is no message to answer again", field="regenerate")
    tx.delete_messages(thread.id, from_seq=said[-1].seq + 1)
