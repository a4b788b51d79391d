"""The HTTP API of signoff as a FastAPI router (WIRE section 2)."""

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.routing import APIRoute
from typing_extensions import TypedDict

from signoff.errors import ConfigurationError
from signoff.http.context import Door, HttpOptions
from signoff.http.links import add_link_routes
from signoff.http.problems import ProblemRoute
from signoff.http.routes_approvals import CURSOR_HEADER, TOTAL_HEADER, add_approval_routes
from signoff.http.routes_chat import add_chat_routes
from signoff.http.routes_not_offered import add_not_offered_routes
from signoff.http.routes_read import add_read_routes
from signoff.http.routes_threads import add_thread_routes
from signoff.http.sse import RUN_HEADER, THREAD_HEADER
from signoff.service.deps import Deps

__all__ = ["CorsOptions", "HttpOptions", "build_router", "cors_options"]


def build_router(deps: Deps, options: HttpOptions) -> APIRouter:
    """All routes, to be included under a prefix of the application's choice (clients expect ``/agent``)."""
    router = APIRouter(route_class=ProblemRoute, tags=["signoff"], generate_unique_id_function=_operation_id)
    door = Door(deps, options)
    add_chat_routes(router, door)
    add_approval_routes(router, door)
    add_thread_routes(router, door)
    add_read_routes(router, door)
    add_not_offered_routes(router, door)
    if deps.links is not None:
        add_link_routes(router, door)
    return router


def _operation_id(route: APIRoute) -> str:
    return f"signoff_{route.name}"


class CorsOptions(TypedDict):
    """Keyword arguments of Starlette's `CORSMiddleware`."""

    allow_origins: list[str]
    allow_credentials: bool
    allow_methods: list[str]
    allow_headers: list[str]
    expose_headers: list[str]


def cors_options(origins: Sequence[str], *, identity_headers: Sequence[str] = ()) -> CorsOptions:
    """What browsers of other origins need: ``api.add_middleware(CORSMiddleware, **cors_options([...]))``.

    Args:
        origins: named, as ``https://app.example``; clients send credentials, and then ``*`` lets nobody in.
        identity_headers: headers that the actor resolver reads, e.g. ``authorization``.
    """
    if isinstance(origins, str) or "*" in origins:
        raise ConfigurationError("name the origins in a list: with credentials, browsers do not accept '*'")
    return CorsOptions(
        allow_origins=list(origins),
        allow_credentials=True,
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=["content-type", "last-event-id", "idempotency-key", *identity_headers],
        expose_headers=[RUN_HEADER, THREAD_HEADER, TOTAL_HEADER, CURSOR_HEADER],
    )
