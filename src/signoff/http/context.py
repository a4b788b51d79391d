"""What every route shares: the use cases' ports, the settings of the door, who asks, what was sent."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json, encode
from signoff.errors import ConfigurationError
from signoff.http import bodies
from signoff.http.adonis import superset
from signoff.http.identity import ActorResolver, resolve
from signoff.http.sse import Dialect, EventStreamResponse, blocks, native
from signoff.service.deps import Deps
from signoff.service.stream import Attached

#: What clients are promised (WIRE 3): a stream that is silent for longer is taken for dead.
KEEP_ALIVE_MAX = timedelta(seconds=15)

BodyT = TypeVar("BodyT", bound=bodies.Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """How the routes behave.

    Without an `actor` resolver every route answers 401. `agent_actors` resolve the actor of a `POST /chat` that names
    their agent, e.g. a public agent behind an anonymous session. `adonis` speaks the older `{delta}` dialect on top of
    the native frames (WIRE 8); without it, streams also carry `tool-input-delta`. `production` replaces texts
    that may hold internals in a failed run's last frame by one fixed sentence. Bodies over `body_bytes_max`
    are refused.
    """

    actor: ActorResolver | None = None
    agent_actors: Mapping[str, ActorResolver] = field(default_factory=dict)
    adonis: bool = True
    production: bool = True
    keep_alive: timedelta = timedelta(seconds=10)
    body_bytes_max: int = 1024 * 1024

    def __post_init__(self) -> None:
        if not timedelta() < self.keep_alive <= KEEP_ALIVE_MAX:
            raise ConfigurationError(f"keep_alive must be above zero and at most {KEEP_ALIVE_MAX}")
        if self.body_bytes_max < 1:
            raise ConfigurationError("body_bytes_max must be at least 1 byte")


class Door:
    """Given to each group of routes."""

    def __init__(self, deps: Deps, options: HttpOptions) -> None:
        self.deps = deps
        self.options = options
        self._dialect: Dialect = superset if options.adonis else native

    async def caller(self, request: Request) -> Actor:
        """Dependency: who asks. Raises `Unauthenticated`."""
        return await resolve(self.options.actor, request)

    def body(self, model: type[BodyT]) -> Callable[[Request], Awaitable[BodyT]]:
        """Dependency: what was sent, as `model`. Declare it after `caller`: strangers are refused unread."""

        async def read(request: Request) -> BodyT:
            return await bodies.read(request, model, bytes_max=self.options.body_bytes_max)

        return read

    async def message(self, request: Request) -> tuple[Actor, bodies.ChatBody]:
        """Dependency of `POST /chat`: who asks, and what.

        Strangers are refused unread, unless some agent has a resolver of its own: then the body says which one.
        """
        resolver = self.options.actor
        if not self.options.agent_actors:
            actor = await resolve(resolver, request)
            return actor, await bodies.read(request, bodies.ChatBody, bytes_max=self.options.body_bytes_max)
        body = await bodies.read(request, bodies.ChatBody, bytes_max=self.options.body_bytes_max)
        if body.agent is not None:
            resolver = self.options.agent_actors.get(body.agent, resolver)
        return await resolve(resolver, request), body

    def stream(self, attached: Attached) -> EventStreamResponse:
        """`attached` as an event stream."""
        content = blocks(
            attached,
            dialect=self._dialect,
            keep_alive=self.options.keep_alive,
            conceal=self.options.production,
        )
        return EventStreamResponse(content, run_id=attached.run_id, thread_id=attached.thread_id)


def reply(content: object, *, headers: Mapping[str, str] | None = None) -> Response:
    """A 200 whose body is `content`, one of the shapes of `present.py`."""
    return Response(encode(_json(content)), headers=headers, media_type="application/json")


class Done(TypedDict):
    """The answer to what has nothing to tell but that it was done."""

    ok: bool


DONE = Done(ok=True)


def _json(content: object) -> Json:
    # The shapes are typed dictionaries of JSON values; only the type checker does not know they are `Json`.
    return content  # type: ignore[return-value]
