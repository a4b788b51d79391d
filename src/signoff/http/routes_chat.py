"""Say something, watch the answer, stop it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from signoff.domain.actor import Actor
from signoff.errors import InvalidInput
from signoff.http.bodies import ChatBody, request_body
from signoff.http.context import Door, reply
from signoff.http.paths import RunId, frame_number
from signoff.http.problems import responses
from signoff.http.sse import RUN_HEADER, THREAD_HEADER, EventStreamResponse
from signoff.service.cancel import cancel
from signoff.service.send import SendRequest, send
from signoff.service.stream import attach

_STREAM: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Server-sent events: `meta`, numbered frames (JSON objects with a `kind`), `done` or `error`",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "headers": {
            RUN_HEADER: {"description": "The run that is streamed", "schema": {"type": "string"}},
            THREAD_HEADER: {"description": "Its conversation", "schema": {"type": "string"}},
        },
    }
}


class Aborted(TypedDict):
    """The cancellation is recorded."""

    aborted: bool


def add_chat_routes(router: APIRouter, door: Door) -> None:
    """`/chat` and below."""

    @router.post(
        "/chat",
        status_code=200,
        response_class=EventStreamResponse,
        responses=_STREAM | responses(400, 403, 404, 409, 413, 429),
        openapi_extra=request_body(ChatBody),
    )
    async def send_message(
        message: tuple[Actor, ChatBody] = Depends(door.message),
        idempotency_key: Annotated[
            str | None, Header(description="1-255 characters; a repeat gets the same run")
        ] = None,
    ) -> Response:
        """Send a message and watch the answer. A conversation is made where none is named."""
        actor, body = message
        started = await send(door.deps, actor, _send_request(body, idempotency_key))
        # The run may have ended before we look: whoever started it still sees all of it.
        return door.stream(await attach(door.deps, actor, started.run_id, even_ended=True))

    @router.get(
        "/chat/{run_id}/stream",
        status_code=200,
        response_class=EventStreamResponse,
        responses=_STREAM | responses(400, 403, 404),
    )
    async def watch_run(
        run_id: RunId,
        actor: Actor = Depends(door.caller),
        after: Annotated[str | None, Query(description="Only frames above this number; wins over the header")] = None,
        last_event_id: Annotated[str | None, Header(description="As `after`, sent by `EventSource`")] = None,
    ) -> Response:
        """Watch a run that has not ended, from its first frame or behind a cursor."""
        cursor = _cursor(after, last_event_id)
        return door.stream(await attach(door.deps, actor, run_id, after=cursor))

    @router.post("/chat/{run_id}/cancel", responses=responses(403, 404, ok=Aborted))
    async def cancel_run(run_id: RunId, actor: Actor = Depends(door.caller)) -> Response:
        """Stop a run. It ends at its next safe point; a tool that is running finishes."""
        await cancel(door.deps, actor, run_id)
        return reply(Aborted(aborted=True))


def _cursor(after: str | None, last_event_id: str | None) -> int:
    if after is not None:
        return frame_number(after, field="after")
    # `EventSource` sends an empty header before it has seen a number.
    return frame_number(last_event_id, field="Last-Event-ID") if last_event_id else 0


def _send_request(body: ChatBody, idempotency_key: str | None) -> SendRequest:
    if body.attachments:
        raise InvalidInput("attachments are not offered here", field="attachments", code="not_offered")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 255:
        raise InvalidInput("Idempotency-Key must have 1-255 characters", field="Idempotency-Key")
    return SendRequest(
        message=body.message,
        thread_id=body.thread_id,
        agent=body.agent,
        persona=body.persona,
        model=body.model,
        page_context=body.page_context,
        regenerate=body.regenerate is True,
        transient=body.transient is True,
        idempotency_key=idempotency_key,
    )
