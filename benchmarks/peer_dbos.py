"""DBOS on SQLite: a workflow written by hand, a step for each model and tool call, `recv` as the gate of the action.

A run is parked once DBOS has registered its `recv` (seen in its table of waiters, in memory: it says so nowhere
else). DBOS polls for messages once a second by default; `DBOS_POLL` sets the seconds. Runs in an environment of its
own.
"""

import asyncio
import os
import time
from pathlib import Path

import harness
from dbos import DBOS, DBOSConfig, SetWorkflowID
from dbos._dbos import _get_dbos_instance

MONTH_S = 30 * 86_400

acted: dict[str, float] = {}
reached: dict[str, asyncio.Event] = {}


@DBOS.step()
async def ask_model(history: list[dict]) -> dict:
    text = "".join(harness.DELTAS)
    said = sum("text" in entry for entry in history)
    return {"text": text, "tool": ("lookup", "transfer", None)[said]}


@DBOS.step()
async def lookup(key: str) -> dict:
    return harness.read(key)


@DBOS.step()
async def transfer(key: str) -> dict:
    acted[key] = time.perf_counter()
    return {"done": key}


@DBOS.workflow()
async def turn(key: str) -> str:
    history: list[dict] = [{"key": key}]
    while True:
        reply = await ask_model(history)
        history.append(reply)
        match reply["tool"]:
            case "lookup":
                history.append({"result": await lookup(key)})
            case "transfer":
                if key in reached:
                    reached[key].set()
                approved = await DBOS.recv_async("approval", timeout_seconds=MONTH_S)
                history.append({"result": await transfer(key) if approved else None})
            case _:
                return reply["text"]


@DBOS.step()
async def tiny(number: int) -> int:
    return number


@DBOS.workflow()
async def steps(count: int) -> int:
    for number in range(count):
        await tiny(number)
    return count


class Dbos:
    """`harness.Contender`."""

    acted = acted

    def __init__(self, database: Path) -> None:
        config = DBOSConfig(
            name="benchmark", system_database_url=f"sqlite:///{database}", log_level="ERROR", console_log_level="ERROR"
        )
        if "DBOS_POLL" in os.environ:
            config["notification_listener_polling_interval_sec"] = float(os.environ["DBOS_POLL"])
        self._config = config
        self._runs: dict = {}

    async def open(self):
        DBOS(config=self._config)
        DBOS.launch()

    async def start(self, key):
        reached[key] = asyncio.Event()
        with SetWorkflowID(key):
            self._runs[key] = await DBOS.start_workflow_async(turn, key)
        await reached[key].wait()
        del reached[key]
        waiters = _get_dbos_instance()._sys_db.notifications_map
        while waiters.get(f"{key}::approval") is None:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.0005)

    async def approve(self, key):
        await DBOS.send_async(key, True, "approval")
        run = self._runs.pop(key, None)
        if run is not None:
            await run.get_result()
        else:  # parked by another process
            await (await DBOS.retrieve_workflow_async(key)).get_result(polling_interval_sec=0.01)

    async def records(self, name, count):
        with SetWorkflowID(name):
            run = await DBOS.start_workflow_async(steps, count)
        await run.get_result()

    def commits(self):
        return None


if __name__ == "__main__":
    harness.main(Dbos)
