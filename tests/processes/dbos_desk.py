"""The application that the tests of worker processes run: `signoff worker tests.processes.dbos_desk:app`."""

import os
from pathlib import Path

from signoff import Agent, Signoff, ToolContext, tool
from signoff.adapters.system import SystemClock
from signoff.demo.model import DemoModel

DATABASE = "SIGNOFF_TEST_DESK_DATABASE"
LEDGER = "SIGNOFF_TEST_DESK_LEDGER"


@tool(name="refundOrder", kind="action")
async def refund_order(orderId: str, cents: int, ctx: ToolContext) -> dict[str, object]:  # noqa: N803
    """Pay an order's price back, in euro cents."""
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{orderId} {cents} {ctx.idempotency_key} {os.getpid()}\n")
    return {"orderId": orderId, "cents": cents}


def desk(database: str) -> Signoff:
    """A desk that serves nothing by itself."""
    return Signoff(
        agents=[Agent("desk", instructions="Help.", tools=[refund_order])],
        database=database,
        engine="dbos",
        serve=False,
        durable="strict",
        model=DemoModel(SystemClock()),
    )


if DATABASE in os.environ:
    app = desk(os.environ[DATABASE])
