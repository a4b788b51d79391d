"""A process that drives runs until all have ended; killed and started again by `test_embedded_processes`.

    python -m tests.conformance.engine.embedded_process <url> <journal of effects> <runs>

It prints a line for each effect on the outside world, and "all done" at the end.
"""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from signoff.adapters.engine.embedded import EmbeddedEngine
from signoff.adapters.stores.sql import SqlStore
from signoff.adapters.system import SystemClock, SystemIds
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InDoubt
from signoff.ports.engine import Context, EngineLimits, EngineStatus, TaskInfo
from signoff.ports.store import Tx
from tests.conformance.engine.world import ONCE, READ, TOOL, Observer, nothing, writing

LIMITS = EngineLimits(lease=timedelta(seconds=1), sweep=timedelta(milliseconds=200))


async def body(ctx: Context, _input: JsonObject) -> Json:
    """Three records, a read and an action; an action in doubt is settled by looking at the outside world."""
    run_id = ctx.run_id
    await ctx.record("begin", writing(f"{run_id} begin"), compute=nothing)
    await ctx.dispatch("read", TOOL, retry=READ)
    await ctx.record("middle", writing(f"{run_id} middle"), compute=nothing)
    try:
        await ctx.dispatch("refund", TOOL, retry=ONCE)
    except InDoubt:
        await ctx.record("doubt", writing(f"{run_id} doubt"), compute=nothing)
    await ctx.record("end", writing(f"{run_id} end"), compute=nothing)
    return None


async def main(url: str, effects: Path, number: int) -> None:
    world = os.open(effects, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    async def tool(task: JsonObject, info: TaskInfo) -> Json:
        os.write(world, f"{info.run_id} {info.name}\n".encode())
        print(info.run_id, info.name, flush=True)
        return None

    store = SqlStore(url)
    await store.open()
    engine = EmbeddedEngine(store, clock=SystemClock(), ids=SystemIds(), limits=LIMITS)
    engine.register("flow", body)
    engine.serve("tools", tool)

    def start(tx: Tx) -> None:
        for n in range(number):
            engine.start(tx, run_id=f"run{n:02}", workflow="flow", input_={})

    await store.transact("start", start)
    await engine.open(Observer())
    ended = 0
    while ended < number:
        await asyncio.sleep(0.05)  # a process of its own; the parent waits for the line below
        ended = await store.read(lambda tx: len(engine.runs(tx, status=EngineStatus.COMPLETED, limit=number)))
    await engine.drain()
    await store.close()
    print("all done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
