"""The application of `workers.py`: each worker process loads it, and so does the process that asks and approves."""

import os
import time
from datetime import timedelta

import harness
from ours import FakeModel

from signoff import Actor, Agent, Signoff, tool
from signoff.ports.engine import EngineLimits

ME = Actor(id="benchmark")


@tool
async def lookup(key: str) -> dict[str, object]:
    """Read."""
    return harness.read(key)


@tool(kind="action")
async def transfer(key: str) -> dict[str, object]:
    """Act, and say when: the clock is the machine's, the same for all its processes."""
    return {"key": key, "at": time.clock_gettime(time.CLOCK_MONOTONIC)}


def desk(url: str) -> Signoff:
    """A desk that drives nothing by itself."""
    return Signoff(
        agents=[Agent("desk", instructions="Do it.", tools=[lookup, transfer])],
        model=FakeModel(),
        database=url,
        engine="dbos",
        serve=False,
        durable="strict",
        sink="database",
        # A busy machine must not make a worker look dead.
        engine_limits=EngineLimits(lease=timedelta(seconds=30), sweep=timedelta(seconds=2)),
    )


if "BENCHMARK_DATABASE" in os.environ:
    app = desk(os.environ["BENCHMARK_DATABASE"])
