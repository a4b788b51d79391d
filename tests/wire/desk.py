"""An application under test, and a client's view of its streams."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
from fastapi import FastAPI

from signoff import ActorQuota, Agent, HeaderActorResolver, Persona, Requirement, Signoff, ask, tool
from signoff.demo.model import DemoModel
from signoff.http.identity import ActorResolver
from signoff.ports.policy import ApprovalPolicy
from signoff.testing.clock import FakeClock

ROLES = {"USER"}
ANA = {"x-actor-id": "ana", "x-actor-role": "USER"}
BO = {"x-actor-id": "bo", "x-actor-role": "USER"}
ADMIN = {"x-actor-id": "amy", "x-actor-role": "USER,ADMIN,INBOX"}
TTL = timedelta(minutes=1)


@tool(name="getWeather", roles=ROLES)
async def get_weather(city: str) -> dict[str, object]:
    """The weather in a city."""
    return {"city": city, "tempC": 21}


class Desk:
    """A whole application: `api` is served, `did` is what its actions really did, `clock` belongs to the test.

    The model is the demo's: "hello", "weather in X", "purge X" (the requester approves), "refund X" (an ADMIN
    does, within `TTL`), "ask me", "slow" (says nothing more until the clock moves), "boom".
    """

    def __init__(
        self,
        *,
        actor: ActorResolver | None = None,
        quota: ActorQuota | None = None,
        policy: ApprovalPolicy | None = None,
        adonis: bool = True,
        production: bool = True,
        keep_alive: timedelta = timedelta(seconds=10),
    ) -> None:
        self.did: list[str] = []
        self.clock = FakeClock()

        @tool(name="purgeCache", kind="action", roles=ROLES)
        async def purge_cache(key: str) -> dict[str, object]:
            """Throw away what is cached under a key."""
            self.did.append(key)
            return {"purged": key}

        @tool(
            name="refundOrder",
            kind="action",
            roles=ROLES,
            approval=Requirement(approver="ADMIN", ttl=TTL, reason="money leaves"),
        )
        async def refund_order(orderId: str, cents: int) -> dict[str, object]:  # noqa: N803
            """Pay an order back."""
            self.did.append(orderId)
            return {"refunded": cents}

        agent = Agent(
            "desk",
            description="Helps.",
            instructions="Be brief.",
            model=DemoModel(self.clock),
            tools=[get_weather, purge_cache, refund_order, ask],
            personas=[Persona("calm", instructions="Be calm.")],
        )
        self.signoff = Signoff(
            agents=[agent],
            database="memory://",
            actor=actor,
            durable=False,
            quota=quota,
            policy=policy,
            inbox_role="INBOX",
            clock=self.clock,
        )
        self.router = self.signoff.router(adonis=adonis, production=production, keep_alive=keep_alive)
        self.api = FastAPI(lifespan=self.signoff.lifespan)
        self.api.include_router(self.router, prefix="/agent")

    @asynccontextmanager
    async def client(self, headers: dict[str, str] = ANA) -> AsyncIterator[httpx.AsyncClient]:
        """A client without a network, for answers that end by themselves."""
        transport = httpx.ASGITransport(self.api)
        async with (
            self.api.router.lifespan_context(self.api),
            httpx.AsyncClient(transport=transport, base_url="http://desk/agent", headers=headers) as client,
        ):
            yield client


def a_desk(**options: Any) -> Desk:
    """A desk that believes headers."""
    return Desk(actor=HeaderActorResolver(), **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a stream, as any client parses it. A keep-alive has only its `comment`."""

    event: str | None = None
    id: str | None = None
    data: Any = None
    comment: str | None = None

    @property
    def kind(self) -> str | None:
        """The frame's kind, or the name of an unnumbered block."""
        if self.event is not None or not isinstance(self.data, dict):
            return self.event
        return str(self.data["kind"])


class Reader:
    """Reads the blocks of an open event stream, one after the other; keeps what it has read in `seen`."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.seen: list[Block] = []
        self._chunks = response.aiter_bytes()
        self._rest = b""

    async def next(self) -> Block | None:
        """The next block; None when the server closed the stream."""
        while b"\n\n" not in self._rest:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                assert self._rest == b"", "the stream ended inside a block"
                return None
            assert b"\r" not in chunk, "CRLF framing decodes to nothing (WIRE 3)"
            self._rest += chunk
        raw, _, self._rest = self._rest.partition(b"\n\n")
        block = _parse(raw.decode())
        self.seen.append(block)
        return block

    async def until(self, kind: str) -> Block:
        """Read on up to the next block of `kind`."""
        while (block := await self.next()) is not None:
            if block.kind == kind:
                return block
        raise AssertionError(f"the stream ended without {kind}: {[block.kind for block in self.seen]}")

    async def rest(self) -> list[Block]:
        """Read on to the end; all that was seen."""
        while await self.next() is not None:
            pass
        return self.seen

    @property
    def kinds(self) -> list[str | None]:
        """The kinds of what was seen."""
        return [block.kind for block in self.seen]

    @property
    def numbers(self) -> list[int]:
        """The numbers that were seen."""
        return [int(block.id) for block in self.seen if block.id is not None]

    @property
    def text(self) -> str:
        """The text that was seen."""
        return "".join(block.data["text"] for block in self.seen if block.kind == "text")


def _parse(raw: str) -> Block:
    fields: dict[str, Any] = {}
    for line in raw.split("\n"):
        name, colon, value = line.partition(":")
        assert colon, f"not a field: {line!r}"
        fields[name or "comment"] = value.removeprefix(" ")
    if "data" in fields:
        fields["data"] = json.loads(fields["data"])
    return Block(**fields)
