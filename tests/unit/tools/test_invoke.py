"""Everything a user's function may do ends in one outcome."""

import asyncio
import contextvars
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from signoff.domain.elicitation import Option, Question
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import Json
from signoff.errors import NotJson, RunCancelled, TooLarge
from signoff.testing.clock import FakeClock
from signoff.tools.context import ToolContext
from signoff.tools.definition import Tool, define_tool
from signoff.tools.invoke import Asked, Failed, OnRetry, Succeeded, ToolOutcome, invoke
from tests.unit.tools.support import a_context

COLOUR = Question(id="colour", prompt="Which?", options=(Option(value="r", label="Red"),), defaults=("r",))


async def run(
    made: Tool,
    ctx: ToolContext | None = None,
    *,
    clock: FakeClock | None = None,
    on_retry: OnRetry = lambda retry, error: None,
    arguments: Json = None,
) -> ToolOutcome:
    return await invoke(
        made,
        made.parse(arguments or {}),
        ctx or a_context(),
        clock=clock or FakeClock(),
        output_bytes_max=10_000,
        on_retry=on_retry,
    )


def returning(value: object) -> Tool:
    def give() -> object:
        return value

    return define_tool(give, kind="action")


class Level(Enum):
    HIGH = "high"


class Receipt(BaseModel):
    number: int = Field(serialization_alias="receiptNumber")
    at: datetime


@dataclass
class Row:
    price: Decimal
    day: date


ROW = Row(Decimal("1.10"), date(2026, 1, 2))
RECEIPT = Receipt(number=1, at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("returned", "kept"),
    [
        (None, None),
        ("a\x00b", "a\x00b"),
        ("\ud800", "\ufffd"),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        (RECEIPT, {"receiptNumber": 1, "at": "2026-01-01T00:00:00Z"}),
        ([ROW], [{"price": "1.10", "day": "2026-01-02"}]),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Level.HIGH, "high"),
        ({"a"}, ["a"]),
        (b"text", "text"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_outputs_become_json(returned: object, kept: Json) -> None:
    assert await run(returning(returned)) == Succeeded(output=kept)


def _cyclic() -> object:
    loop: list[object] = []
    loop.append(loop)
    return loop


def _deep() -> object:
    value: object = 1
    for _ in range(10_000):
        value = [value]
    return value


def _endless() -> Iterator[int]:
    while True:
        yield 1


class Unspeakable(BaseModel):
    def model_dump(self, **kwargs: Any) -> dict[str, Any]:
        raise RuntimeError

    lock: Any = Field(default_factory=threading.Lock)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sys.stdout,
        threading.Lock,
        _cyclic,
        _deep,
        _endless,
        lambda: float("nan"),
        lambda: {"x": [float("inf")]},
        lambda: b"\xff",
        lambda: 10**5000,
        lambda: "x" * 10_001,
        Unspeakable,
        lambda: {("a", 1): object()},
    ],
    ids=["file", "lock", "cycle", "deep", "endless", "nan", "inf", "bytes", "digits", "large", "model", "keys"],
)
async def test_an_output_that_cannot_be_kept_says_that_the_tool_ran(make: Callable[[], object]) -> None:
    effects: list[int] = []

    def work() -> object:
        effects.append(1)
        return make()

    outcome = await run(define_tool(work, kind="action"))

    assert isinstance(outcome, Failed)
    assert outcome.error_type == "UnusableOutput"
    assert "'work' RAN, but its output could not be kept" in outcome.error
    assert len(outcome.error) <= 2000
    assert effects == [1]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (KeyError(), "KeyError"),
        (StopIteration("x"), "RuntimeError: StopIteration"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two (1 sub-exception)"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_an_exception_is_a_failure_with_type_and_message(error: Exception, text: str, is_async: bool) -> None:
    async def fail_async() -> None:
        raise error

    def fail() -> None:
        raise error

    outcome = await run(define_tool(fail_async if is_async else fail))

    assert isinstance(outcome, Failed)
    assert outcome.error == text or (isinstance(error, StopIteration) and outcome.error_type == "RuntimeError")


async def test_a_failures_text_is_bounded() -> None:
    def fail() -> None:
        raise ValueError("x" * 5000)

    outcome = await run(define_tool(fail))

    assert isinstance(outcome, Failed)
    assert len(outcome.error) == 2000


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_sys_exit_ends_the_tool_not_the_process(is_async: bool) -> None:
    async def leave_async() -> None:
        sys.exit(3)

    def leave() -> None:
        sys.exit(3)

    outcome = await run(define_tool(leave_async if is_async else leave))

    assert isinstance(outcome, Failed)
    assert "sys.exit(3)" in outcome.error


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    async def raise_cancelled() -> None:
        raise asyncio.CancelledError

    async def cancel_own_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    for work in (raise_cancelled, cancel_own_task):
        outcome = await run(define_tool(work))
        assert isinstance(outcome, Failed)
        assert outcome.error_type == "Cancelled"


async def test_our_own_cancellation_stops_the_tool_and_propagates() -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(run(define_tool(wait)))
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_an_asynchronous_tool_is_stopped_at_its_limit() -> None:
    clock, started, stopped = FakeClock(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(run(define_tool(wait, timeout=timedelta(seconds=2)), clock=clock))
    await started.wait()
    clock.advance(timedelta(seconds=1.9))
    await asyncio.sleep(0)
    assert not task.done()
    clock.advance(timedelta(seconds=0.1))
    outcome = await task

    assert stopped.is_set()
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "Timeout"
    assert outcome.error.startswith("Timeout: 'wait' was not done after 2 s. It was stopped and may have done part")


async def test_a_thread_cannot_be_stopped_and_the_text_says_so() -> None:
    clock, started, release = FakeClock(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(10)
        return "late"

    task = asyncio.create_task(run(define_tool(wait, timeout=timedelta(seconds=2)), clock=clock))
    await started.wait()
    clock.advance(timedelta(seconds=2))
    outcome = await task
    release.set()

    assert isinstance(outcome, Failed)
    assert "It cannot be stopped and may still run: check before you call it again." in outcome.error


async def test_a_synchronous_tool_runs_in_a_thread_with_the_context_variables() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    user.set("ana")

    def look() -> list[object]:
        return [user.get(), threading.current_thread() is threading.main_thread()]

    assert await run(define_tool(look)) == Succeeded(output=["ana", False])


class DatabaseError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


class Wrapped(Exception):
    def __init__(self, orig: Exception) -> None:
        super().__init__("wrapped")
        self.orig = orig


class Flaky(Exception):
    transient = True


def _caused(cause: Exception) -> Exception:
    error = RuntimeError("could not save")
    error.__cause__ = cause
    return error


async def _attempts(error: Exception, *, failures: int, **options: Any) -> tuple[ToolOutcome, int, list[int]]:
    clock, calls, retries = FakeClock(), 0, list[int]()
    retried = asyncio.Event()

    async def work() -> str:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise error
        return "saved"

    def on_retry(retry: int, _error: Exception) -> None:
        retries.append(retry)
        retried.set()

    task = asyncio.create_task(run(define_tool(work, **options), clock=clock, on_retry=on_retry))
    while not task.done():
        wake = asyncio.create_task(retried.wait())
        await asyncio.wait({task, wake}, return_when=asyncio.FIRST_COMPLETED)
        wake.cancel()
        retried.clear()
        await asyncio.sleep(0)  # let it begin its wait
        clock.advance(timedelta(seconds=1))
    return await task, calls, retries


@pytest.mark.parametrize(
    "error",
    [
        DatabaseError("40001"),
        DatabaseError("40P01"),
        Wrapped(DatabaseError("40001")),
        _caused(DatabaseError("40P01")),
        Flaky(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("options", [{}, {"kind": "action", "idempotent": True}], ids=["read", "idempotent"])
async def test_transient_errors_are_tried_again_in_place(error: Exception, options: dict[str, Any]) -> None:
    outcome, calls, retries = await _attempts(error, failures=2, **options)

    assert outcome == Succeeded(output="saved")
    assert (calls, retries) == (3, [1, 2])


async def test_three_retries_are_all() -> None:
    outcome, calls, retries = await _attempts(DatabaseError("40001"), failures=9)

    assert outcome == Failed(error="DatabaseError: 40001", error_type="DatabaseError")
    assert (calls, retries) == (4, [1, 2, 3])


@pytest.mark.parametrize(
    ("error", "options"),
    [(DatabaseError("40001"), {"kind": "action"}), (Flaky(), {"kind": "action"}), (DatabaseError("23505"), {})],
    ids=["action", "transient action", "unique violation"],
)
async def test_nothing_else_is_tried_again(error: Exception, options: dict[str, Any]) -> None:
    outcome, calls, retries = await _attempts(error, failures=1, **options)

    assert isinstance(outcome, Failed)
    assert (calls, retries) == (1, [])


async def test_a_question_passes_except_exception_and_comes_out_as_asked() -> None:
    async def paint(ctx: ToolContext) -> str:
        try:
            outcome = await ctx.ask([COLOUR], "For the wall")
        except Exception:  # noqa: BLE001
            return "swallowed"
        return outcome.answers["colour"][0]

    made = define_tool(paint)
    asked = await run(made)
    told = await run(made, a_context(answers=({"answers": {"colour": ["r"]}, "skipped": False, "defaulted": []},)))

    assert asked == Asked(
        request={
            "preamble": "For the wall",
            "questions": [
                {
                    "id": "colour",
                    "prompt": "Which?",
                    "options": [{"value": "r", "label": "Red"}],
                    "defaults": ["r"],
                }
            ],
        },
        index=0,
    )
    assert told == Succeeded(output="r")


async def test_the_second_question_has_its_own_index() -> None:
    async def twice(ctx: ToolContext) -> str:
        await ctx.ask([COLOUR])
        await ctx.ask([COLOUR])
        return "done"

    answer: dict[str, Json] = {"answers": {"colour": ["r"]}, "skipped": False, "defaulted": []}
    outcome = await run(define_tool(twice), a_context(answers=(answer,)))

    assert isinstance(outcome, Asked)
    assert outcome.index == 1


async def test_a_question_inside_a_task_group_is_still_a_question() -> None:
    async def grouped(ctx: ToolContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(ctx.ask([COLOUR]))

    assert isinstance(await run(define_tool(grouped)), Asked)


async def test_a_malformed_question_is_a_failure_of_the_tool() -> None:
    async def badly(ctx: ToolContext) -> None:
        await ctx.ask([{"id": "x", "prompt": "?"}])

    outcome = await run(define_tool(badly))

    assert isinstance(outcome, Failed)
    assert "questions[0]: a pick needs options" in outcome.error


async def test_what_unwinds_the_run_passes_untouched() -> None:
    unwinding = RunCancelled()

    async def stop() -> None:
        raise unwinding

    with pytest.raises(RunCancelled) as caught:
        await run(define_tool(stop))
    assert caught.value is unwinding


async def test_ui_frames_go_to_the_runtime() -> None:
    frames: list[Frame] = []

    def show(ctx: ToolContext) -> None:
        ctx.emit_ui("chart", {"points": (1, 2), "day": date(2026, 1, 2)}, version="2", fallback_text="a chart")
        ctx.emit_ui("chart", {})

    await run(define_tool(show), a_context(frames=frames))

    assert frames == [
        {
            "kind": "ui",
            "id": "call_1:ui:1",
            "component": "chart",
            "props": {"points": [1, 2], "day": "2026-01-02"},
            "version": "2",
            "fallbackText": "a chart",
            "toolCallId": "call_1",
        },
        {"kind": "ui", "id": "call_1:ui:2", "component": "chart", "props": {}, "toolCallId": "call_1"},
    ]


@pytest.mark.parametrize(("props", "error"), [({"x": object()}, NotJson), ({"x": "y" * 70_000}, TooLarge)])
def test_ui_props_are_bounded_json(props: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match="props of component 'chart'"):
        a_context().emit_ui("chart", props)


def test_a_tool_can_see_that_its_run_was_cancelled() -> None:
    assert a_context(cancelled=True).cancelled
    assert not a_context().cancelled


async def test_a_callable_that_returns_an_awaitable_is_awaited() -> None:
    async def inner() -> int:
        return 3

    def outer() -> Awaitable[int]:
        return inner()

    assert await run(define_tool(outer)) == Succeeded(output=3)
