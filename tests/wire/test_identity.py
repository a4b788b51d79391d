"""Who asks."""

import threading

import pytest
from starlette.requests import Request

from signoff.domain.actor import Actor
from signoff.errors import Unauthenticated
from signoff.http.identity import ActorResolver, HeaderActorResolver, resolve


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw})


async def test_headers_name_the_actor_and_the_roles() -> None:
    actor = await resolve(HeaderActorResolver(), request(x_actor_id="ana", x_actor_role="admin, finance,,"))

    assert actor == Actor(id="ana", roles=frozenset({"admin", "finance"}))


@pytest.mark.parametrize("headers", [{}, {"x_actor_id": ""}, {"x_actor_id": "  "}, {"x_actor_role": "admin"}])
async def test_without_an_id_nobody_asks(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        await resolve(HeaderActorResolver(), request(**headers))


async def test_where_tenants_are_told_apart_an_actor_without_one_is_nobody() -> None:
    resolver = HeaderActorResolver(tenant_header="x-tenant")

    with pytest.raises(Unauthenticated):
        await resolve(resolver, request(x_actor_id="ana"))
    assert (await resolve(resolver, request(x_actor_id="ana", x_tenant="acme"))).tenant == "acme"


async def test_a_plain_function_runs_in_a_thread() -> None:
    """It may look into a session store; the event loop must not wait for that."""
    threads: list[int] = []

    def resolver(_request: Request) -> Actor:
        threads.append(threading.get_ident())
        return Actor(id="ana")

    assert (await resolve(resolver, request())).id == "ana"
    assert threads != [threading.get_ident()]


async def fails(_request: Request) -> Actor | None:
    raise RuntimeError("ldap://secret")


def returns_text(_request: Request) -> Actor | None:
    return "ana"  # type: ignore[return-value]


def returns_nobody(_request: Request) -> Actor | None:
    return Actor(id="")


@pytest.mark.parametrize("resolver", [None, fails, returns_text, returns_nobody])
async def test_a_resolver_that_is_missing_or_broken_lets_nobody_in(resolver: ActorResolver | None) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await resolve(resolver, request(x_actor_id="ana"))

    assert "secret" not in str(caught.value)
