"""DBOS on PostgreSQL, by hand: a queue of workflows, `recv` as the gate.

``python workers_dbos.py URL NAME`` is a worker.
"""

import asyncio
import sys
import time

import harness
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer

QUEUE = "turns"
MONTH_S = 30 * 86_400
APPLICATION = "benchmark"
VERSION = "1"


@DBOS.step()
async def ask_model(history: list[dict]) -> dict:
    """The fake model."""
    said = sum("text" in entry for entry in history)
    return {"text": "".join(harness.DELTAS), "tool": ("lookup", "transfer", None)[said]}


@DBOS.step()
async def lookup(key: str) -> dict:
    """Read."""
    return harness.read(key)


@DBOS.step()
async def transfer(key: str) -> dict:
    """Act, and say when."""
    return {"key": key, "at": time.clock_gettime(time.CLOCK_MONOTONIC)}


@DBOS.workflow(name="turn")
async def turn(key: str) -> float:
    """An approval turn; returns when it acted."""
    history: list[dict] = [{"key": key}]
    acted = 0.0
    while True:
        reply = await ask_model(history)
        history.append(reply)
        match reply["tool"]:
            case "lookup":
                history.append({"result": await lookup(key)})
            case "transfer":
                await DBOS.set_event_async("card", key)
                if await DBOS.recv_async("approval", timeout_seconds=MONTH_S):
                    done = await transfer(key)
                    acted = done["at"]
                    history.append({"result": done})
            case _:
                return acted


async def work(url: str, name: str) -> None:
    """Serve the queue until killed."""
    config = DBOSConfig(
        name=APPLICATION,
        system_database_url=url,
        application_version=VERSION,
        executor_id=name,
        run_migrations=False,
        serializer=DBOSPortableJSONSerializer(),
        log_level="ERROR",
        console_log_level="ERROR",
    )
    DBOS(config=config)
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
