"""The application that the tests of worker processes run: `signoff worker tests.processes.dbos_desk:app`."""

import asyncio
import os
from pathlib import Path

from signoff import Agent, Signoff, ToolContext, tool
from signoff.adapters.system import SystemClock
from signoff.demo.model import DemoModel

DATABASE = "SIGNOFF_TEST_DESK_DATABASE"
LEDGER = "SIGNOFF_TEST_DESK_LEDGER"


def _note(what: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{what} {os.getpid()}\n")


@tool(name="refundOrder", kind="action")
async def refund_order(orderId: str, cents: int, ctx: ToolContext) -> dict[str, object]:  # noqa: N803
    """Pay an order's price back, in euro cents."""
    _note(f"{orderId} {cents} {ctx.idempotency_key}")
    return {"orderId": orderId, "cents": cents}


@tool(name="transferMoney", kind="action")
async def transfer_money(euros: int) -> dict[str, object]:
    """Transfer money, and hang in the middle of it for as long as there is nobody who says how it went."""
    _note(f"transfer {euros} -")
    await asyncio.Event().wait()
    return {"euros": euros}


def desk(database: str) -> Signoff:
    """A desk that serves nothing by itself."""
    return Signoff(
        agents=[Agent("desk", instructions="Help.", tools=[refund_order, transfer_money])],
        database=database,
        engine="dbos",
        serve=False,
        durable="strict",
        model=DemoModel(SystemClock()),
    )


if DATABASE in os.environ:
    app = desk(os.environ[DATABASE])
