"""Conversations: list, read, rename, copy, cut, keep, delete."""

from fastapi import APIRouter, Depends
from starlette.responses import Response

from signoff.domain.actor import Actor
from signoff.http.bodies import ThreadBody, request_body
from signoff.http.context import DONE, Done, Door, reply
from signoff.http.paths import MessageId, ThreadId
from signoff.http.present import ThreadDetail, ThreadSummary, thread_detail, thread_summary
from signoff.http.present_catalog import Persona
from signoff.http.problems import responses
from signoff.ports.store import ThreadChanges
from signoff.service import threads
from signoff.service.read import list_agents


def add_thread_routes(router: APIRouter, door: Door) -> None:
    """`/threads` and below."""
    deps = door.deps

    @router.get("/threads", responses=responses(ok=list[ThreadSummary]))
    async def list_threads(actor: Actor = Depends(door.caller)) -> Response:
        """The caller's conversations, last used first."""
        return reply([thread_summary(thread) for thread in await threads.list_threads(deps, actor)])

    # Before the route of one thread: "personas" is no id.
    @router.get("/threads/personas/catalog", responses=responses(ok=list[Persona]))
    async def list_personas(_actor: Actor = Depends(door.caller)) -> Response:
        """Every persona that some agent has."""
        labels = {persona.name: persona.label for agent in list_agents(deps) for persona in agent.personas}
        return reply([Persona(id=name, label=label or name) for name, label in labels.items()])

    @router.get("/threads/{thread_id}", responses=responses(403, 404, ok=ThreadDetail))
    async def get_thread(thread_id: ThreadId, actor: Actor = Depends(door.caller)) -> Response:
        """A conversation with everything said and done in it."""
        return reply(thread_detail(await threads.get_thread(deps, actor, thread_id)))

    @router.patch(
        "/threads/{thread_id}", responses=responses(400, 403, 404, 413, ok=Done), openapi_extra=request_body(ThreadBody)
    )
    async def change_thread(
        thread_id: ThreadId,
        actor: Actor = Depends(door.caller),
        body: ThreadBody = Depends(door.body(ThreadBody)),
    ) -> Response:
        """Rename a conversation, or choose its agent, model and persona."""
        await threads.change_thread(deps, actor, thread_id, _changes(body))
        return reply(DONE)

    @router.delete("/threads/{thread_id}", responses=responses(403, 404, ok=Done))
    async def delete_thread(thread_id: ThreadId, actor: Actor = Depends(door.caller)) -> Response:
        """Delete a conversation; what runs in it is stopped."""
        await threads.delete_thread(deps, actor, thread_id)
        return reply(DONE)

    @router.post(
        "/threads/{thread_id}/fork-from/{message_id}",
        responses=responses(403, 404, ok=ThreadSummary),
    )
    async def fork_thread(thread_id: ThreadId, message_id: MessageId, actor: Actor = Depends(door.caller)) -> Response:
        """Copy a conversation up to and including a message."""
        return reply(thread_summary(await threads.fork_thread(deps, actor, thread_id, message_id)))

    @router.delete("/threads/{thread_id}/from/{message_id}", responses=responses(403, 404, 409, ok=Done))
    async def truncate_thread(
        thread_id: ThreadId, message_id: MessageId, actor: Actor = Depends(door.caller)
    ) -> Response:
        """Delete a message and everything after it."""
        await threads.truncate_thread(deps, actor, thread_id, message_id)
        return reply(DONE)

    @router.post("/threads/{thread_id}/promote", responses=responses(403, 404, ok=Done))
    async def promote_thread(thread_id: ThreadId, actor: Actor = Depends(door.caller)) -> Response:
        """Keep a throw-away conversation."""
        await threads.promote_thread(deps, actor, thread_id)
        return reply(DONE)

    @router.get("/threads/{thread_id}/action-proposals", responses=responses(403, 404))
    async def list_action_proposals(thread_id: ThreadId, actor: Actor = Depends(door.caller)) -> Response:
        """None: proposals are not offered, and clients ask after each turn."""
        await threads.check_thread(deps, actor, thread_id)
        return reply([])

    @router.get("/threads/{thread_id}/queue", responses=responses(403, 404))
    async def get_queue(thread_id: ThreadId, actor: Actor = Depends(door.caller)) -> Response:
        """Nothing: a message to a busy conversation is refused, not queued."""
        await threads.check_thread(deps, actor, thread_id)
        return reply({"items": [], "paused": None})


def _changes(body: ThreadBody) -> ThreadChanges:
    changes = ThreadChanges()
    if "title" in body.model_fields_set:
        changes["title"] = body.title
    if "default_agent" in body.model_fields_set:
        changes["default_agent"] = body.default_agent
    if "model" in body.model_fields_set:
        changes["model"] = body.model
    if "persona" in body.model_fields_set:
        changes["persona"] = body.persona
    return changes
