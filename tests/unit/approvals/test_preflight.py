"""A tool's own check: it may let a call pass, refuse it, or say it is done. Doubt refuses."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from signoff.approvals.preflight import Confirmation, Denied, Done, Preflight, Ready, run_preflight
from signoff.domain.jsonvalue import Json
from signoff.errors import RunCancelled
from signoff.testing.clock import FakeClock
from signoff.tools.context import ToolContext
from signoff.tools.definition import define_tool
from tests.unit.tools.support import a_context


def refund(order_id: str, cents: int) -> None: ...


async def check(hook: Callable[..., object] | None, clock: FakeClock | None = None) -> Preflight:
    options: dict[str, Any] = {} if hook is None else {"prepare": hook}
    made = define_tool(refund, kind="action", **options)
    return await run_preflight(
        made.prepare,
        made.parse({"order_id": "A1", "cents": 5}),
        a_context(),
        clock=clock or FakeClock(),
        timeout=timedelta(seconds=10),
        output_bytes_max=1000,
    )


def answering(answer: object) -> Callable[[], object]:
    return lambda: answer


WORDED = Confirmation(title="Refund A1", verb="Refund", detail="5 cents")


@pytest.mark.parametrize(
    ("hook", "outcome"),
    [
        (None, Ready()),
        (answering(Ready()), Ready()),
        (answering(Ready(confirmation=WORDED)), Ready(confirmation=WORDED)),
        (answering(Ready(target={"type": "order", "id": "A1"})), Ready(target={"type": "order", "id": "A1"})),
        (answering(Denied("the order is closed")), Denied("the order is closed")),
        (answering(Denied("")), Denied("the tool's own check refused it")),
        (answering(Done({"refunded": 5})), Done({"refunded": 5})),
        (answering(Done((1, 2))), Done([1, 2])),
        (answering(Done()), Done(None)),
    ],
)
async def test_the_answers_a_check_may_give(hook: Callable[..., object] | None, outcome: Preflight) -> None:
    assert await check(hook) == outcome


async def test_a_check_takes_the_arguments_it_names() -> None:
    async def prepare(cents: int, ctx: ToolContext) -> Preflight:
        return Denied(f"{cents} for {ctx.actor.id}")

    assert await check(prepare) == Denied("5 for ana")


def raises() -> Preflight:
    raise LookupError("orders are down")


async def asks(ctx: ToolContext) -> Preflight:
    await ctx.ask([{"id": "q", "prompt": "?", "input": {"type": "text"}}])
    return Ready()


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (raises, "LookupError: orders are down"),
        (asks, "a check cannot ask the user"),
        (answering(None), "it answered a NoneType"),
        (answering(True), "it answered a bool"),
        (answering("ready"), "it answered a str"),
        (answering(Ready), "it answered a type"),
        (answering(Ready(confirmation="Refund?")), "it answered a Ready"),  # type: ignore[arg-type]
        (answering(Denied(None)), "it answered a Denied"),  # type: ignore[arg-type]
        (answering(Ready(confirmation=Confirmation(title="", verb="Go"))), "the confirmation's title must be"),
        (answering(Ready(confirmation=Confirmation(title="x" * 201, verb="Go"))), "the confirmation's title must be"),
        (answering(Ready(target={"x": float("nan")})), "the target cannot be stored"),
        (answering(Done(object())), "the output of the check cannot be stored"),
        (answering(Done("x" * 2000)), "the output of the check has 2002 bytes"),
    ],
)
async def test_doubt_denies(hook: Callable[..., object], why: str) -> None:
    outcome = await check(hook)

    assert isinstance(outcome, Denied)
    assert outcome.reason.startswith("not run: the tool's own check failed (")
    assert why in outcome.reason


async def test_a_check_that_hangs_denies() -> None:
    clock, started = FakeClock(), asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(check(hang, clock))
    await started.wait()
    clock.advance(timedelta(seconds=10))

    assert await task == Denied("not run: the tool's own check failed (not done after 10 s)")


async def test_what_unwinds_the_run_passes_untouched() -> None:
    async def stop() -> None:
        raise RunCancelled

    with pytest.raises(RunCancelled):
        await check(stop)


@pytest.mark.parametrize(
    ("confirmation", "on_wire"),
    [
        (WORDED, {"title": "Refund A1", "verb": "Refund", "detail": "5 cents"}),
        (Confirmation(title="T", verb="V"), {"title": "T", "verb": "V"}),
    ],
)
def test_a_confirmation_on_the_wire(confirmation: Confirmation, on_wire: dict[str, Json]) -> None:
    assert confirmation.as_json() == on_wire


async def test_a_check_cannot_change_the_arguments() -> None:
    seen: list[Any] = []

    def prepare(order_id: str) -> Preflight:
        seen.append(order_id)
        return Ready()

    await check(prepare)
    assert seen == ["A1"]
