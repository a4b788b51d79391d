"""Routes that clients of this contract know and this server does not offer: 501, not a puzzling 404."""

from fastapi import APIRouter, Depends
from starlette.responses import Response

from signoff.domain.actor import Actor
from signoff.http.context import Door
from signoff.http.problems import NOT_OFFERED, body, refusal, responses

_NOT_OFFERED = (
    ("DELETE", "/threads/{thread_id}/queue"),
    ("POST", "/threads/{thread_id}/queue/resume"),
    ("PATCH", "/queue/{message_id}"),
    ("DELETE", "/queue/{message_id}"),
    ("POST", "/queue/{message_id}/interrupt"),
    ("POST", "/threads/{thread_id}/action-proposals/{proposal_id}/approve"),
    ("POST", "/threads/{thread_id}/action-proposals/{proposal_id}/reject"),
    ("POST", "/attachments"),
    ("GET", "/attachments"),
    ("POST", "/messages/{message_id}/feedback"),
    ("GET", "/skills"),
)


def add_not_offered_routes(router: APIRouter, door: Door) -> None:
    """The rest of WIRE section 2."""

    async def not_offered(_actor: Actor = Depends(door.caller)) -> Response:
        return refusal(NOT_OFFERED, body("this is not offered here", "not_offered"))

    for method, path in _NOT_OFFERED:
        router.add_api_route(
            path, not_offered, methods=[method], responses=responses(NOT_OFFERED), include_in_schema=False
        )
