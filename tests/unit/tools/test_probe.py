"""After a crash: only a clear answer of the tool's own probe counts."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from signoff.testing.clock import FakeClock
from signoff.tools.definition import define_tool
from signoff.tools.probe import Happened, NotHappened, ProbeAnswer, Unknown, run_probe
from tests.unit.tools.support import a_context


def refund(order_id: str) -> None: ...


async def probe(hook: Callable[..., object] | None, clock: FakeClock | None = None) -> ProbeAnswer:
    options: dict[str, Any] = {} if hook is None else {"probe": hook}
    made = define_tool(refund, kind="action", **options)
    bound = made.parse({"order_id": "A1"})
    limit = timedelta(seconds=10)
    return await run_probe(made, bound, a_context(), clock=clock or FakeClock(), limit=limit, output_bytes_max=100)


def finds(order_id: str) -> Happened:
    return Happened(output={"order": (order_id,)})


def breaks() -> NotHappened:
    raise OSError("bank is down")


@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        (finds, Happened(output={"order": ["A1"]})),
        (NotHappened, NotHappened()),
        (lambda: Unknown(why="the bank does not say"), Unknown(why="the bank does not say")),
        (None, Unknown(why="the tool has no probe")),
        (breaks, Unknown(why="the tool's probe failed (OSError)")),
        (lambda: False, Unknown(why="the tool's probe answered a bool")),
        (lambda: None, Unknown(why="the tool's probe answered a NoneType")),
        (lambda: NotHappened, Unknown(why="the tool's probe answered a type")),
    ],
)
async def test_a_probe_answers_or_a_person_does(hook: Callable[..., object] | None, answer: ProbeAnswer) -> None:
    assert await probe(hook) == answer


async def test_an_output_that_cannot_be_kept_is_no_answer() -> None:
    answer = await probe(lambda: Happened(output="x" * 200))

    assert isinstance(answer, Unknown)
    assert answer.why.startswith("the probe says it happened, but the probe's output has 202 bytes")


async def test_a_probe_that_hangs_is_no_answer() -> None:
    clock, started = FakeClock(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(probe(hang, clock))
    await started.wait()
    clock.advance(timedelta(seconds=10))

    assert await task == Unknown(why="the tool's probe failed (LimitPassed)")
