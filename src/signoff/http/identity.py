"""Who asks. The application knows; signoff never invents an actor."""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from signoff.domain.actor import Actor
from signoff.errors import Unauthenticated

log = logging.getLogger(__name__)

#: Reads the actor from a request (a session, a token); None means nobody is signed in. Functions that are not
#: `async` run in a thread.
ActorResolver: TypeAlias = Callable[[Request], Actor | Awaitable[Actor | None] | None]


class HeaderActorResolver:
    """Believes request headers. Only for tests, and behind a gateway that sets these headers itself.

    Roles are comma-separated. Without `tenant_header` all actors are of the tenant ``""``; with it, a request
    that lacks the header has no actor.
    """

    def __init__(
        self,
        id_header: str = "x-actor-id",
        role_header: str = "x-actor-role",
        tenant_header: str | None = None,
    ) -> None:
        self._id_header = id_header
        self._role_header = role_header
        self._tenant_header = tenant_header

    async def __call__(self, request: Request) -> Actor | None:
        """The actor that the headers name."""
        id_ = request.headers.get(self._id_header, "").strip()
        tenant = ""
        if self._tenant_header is not None:
            tenant = request.headers.get(self._tenant_header, "").strip()
            if not tenant:
                return None
        if not id_:
            return None
        roles = (role.strip() for role in request.headers.get(self._role_header, "").split(","))
        return Actor(id=id_, roles=frozenset(role for role in roles if role), tenant=tenant)


async def resolve(resolver: ActorResolver | None, request: Request) -> Actor:
    """The acting identity of `request`.

    Raises:
        Unauthenticated: no resolver, it found nobody, or it failed. Why it failed is for the log.
    """
    if resolver is None:
        raise Unauthenticated
    try:
        found = await _ask(resolver, request)
    except Exception as error:
        log.exception("the actor resolver failed")
        raise Unauthenticated from error
    if found is None:
        raise Unauthenticated
    if not isinstance(found, Actor) or not found.id:
        log.error("the actor resolver returned no actor but a %s", type(found).__name__)
        raise Unauthenticated
    return found


async def _ask(resolver: ActorResolver, request: Request) -> object:
    call = resolver if inspect.isroutine(resolver) else getattr(resolver, "__call__", None)  # noqa: B004
    answer: object = (
        resolver(request) if inspect.iscoroutinefunction(call) else await run_in_threadpool(resolver, request)
    )
    return await answer if inspect.isawaitable(answer) else answer
