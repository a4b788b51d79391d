"""A world's HTTP API, for the cases that speak of bodies and statuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from signoff.domain.actor import Actor
from signoff.testing.world import ANA, World

JSON = {"content-type": "application/json"}


@asynccontextmanager
async def browser(world: World, by: Actor = ANA) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the newest process, signed in as `by`."""
    api = FastAPI()
    api.include_router(world.app.router())
    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://desk", headers={"x-actor-id": by.id}) as client:
        yield client
