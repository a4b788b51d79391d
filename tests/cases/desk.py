"""The desk that the cases use: tools that do something to the outside world that a test can count, and a policy."""

import asyncio
from typing import Unpack

from signoff import Actor, Agent, Requirement, Tool, ToolContext, define_tool
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.thread import Thread
from signoff.ports.policy import ToolView
from signoff.testing.outside import Bank, Gate, MailServer
from signoff.testing.world import World
from signoff.tools.definition import ToolOptions


def desk(*tools: object, max_steps: int = 8) -> Agent:
    """The agent of most cases."""
    return Agent("desk", instructions="Serve the customer.", tools=tools, max_steps=max_steps)


def refund_tool(bank: Bank, **options: Unpack[ToolOptions]) -> Tool:
    """An action that pays, each time it runs."""

    async def refund(order: str, cents: int = 500) -> JsonObject:
        return bank.refund(order, cents)

    options["kind"] = "action"
    return define_tool(refund, **options)


def gated_refund_tool(bank: Bank, gate: Gate, **options: Unpack[ToolOptions]) -> Tool:
    """An action that pays once the gate has let it pass."""

    async def refund(order: str, cents: int = 500) -> JsonObject:
        await gate.passage()
        return bank.refund(order, cents)

    options["kind"] = "action"
    return define_tool(refund, **options)


class Crash:
    """A place in a tool at which its process dies, once the test has armed it; the next time it lives on."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._struck = asyncio.Event()

    def arm(self, world: World) -> None:
        """Let the newest process of `world` die at the next visit."""
        self._world = world

    async def visit(self) -> None:
        """Go on, or never."""
        world, self._world = self._world, None
        if world is not None:
            world.kill()
            self._struck.set()
            await asyncio.Future()

    async def struck(self) -> None:
        """Return once a process has died here."""
        await self._struck.wait()


def crashing_refund_tool(bank: Bank, crash: Crash, **options: Unpack[ToolOptions]) -> Tool:
    """An action whose process may die right after it has paid. It tells the bank its key."""

    async def refund(order: str, ctx: ToolContext, cents: int = 500) -> JsonObject:
        receipt = bank.refund(order, cents, key=ctx.idempotency_key)
        await crash.visit()
        return receipt

    options["kind"] = "action"
    return define_tool(refund, **options)


def mail_tool(mail: MailServer) -> Tool:
    """An action whose effect can be counted but never undone."""

    async def send_mail(to: str, text: str = "Hello") -> JsonObject:
        return mail.send(to, text)

    return define_tool(send_mail, kind="action")


class Archive:
    """Orders that a read looks up; counts how often it was asked."""

    def __init__(self) -> None:
        self.reads = 0

    async def get_order(self, order: str) -> JsonObject:
        """Look an order up."""
        self.reads += 1
        return {"order": order, "cents": 500}

    @property
    def tool(self) -> Tool:
        """The read."""
        return define_tool(self.get_order)


class HoldsUp(DefaultPolicy):
    """Answers for one tool only after the gate has opened, so that the run is kept from waiting for its cards."""

    def __init__(self, tool: str, gate: Gate) -> None:
        self._tool = tool
        self._gate = gate

    async def requirement_for(  # type: ignore[override]  # the port allows both
        self, call: Call, tool: ToolView, actor: Actor, thread: Thread
    ) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        if tool.name == self._tool:
            await self._gate.passage()
        return super().requirement_for(call, tool, actor, thread)
