"""Cancelling: at once while parked, at the next primitive while running, and never undone by a late result."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ContinueAsNew, RunCancelled, StepFailed
from signoff.ports.engine import (
    Body,
    Context,
    EngineLimits,
    EngineStatus,
    JournalEntry,
    Retry,
    SignalOutcome,
    TaskInfo,
)
from signoff.ports.store import Tx
from tests.conformance.engine.contract_children import parent_of, patient_leaf
from tests.conformance.engine.contract_waits import one_wait
from tests.conformance.engine.world import ONCE, READ, TOOL, Dies, EngineWorld, Tool, nothing, writing


def step_then_note(retry: Retry) -> Body:
    async def body(ctx: Context, _input: JsonObject) -> Json:
        value = await ctx.dispatch("step", TOOL, retry=retry)
        return await ctx.record("after", writing("after", value), compute=nothing)

    return body


async def trip(ctx: Context, _input: JsonObject) -> Json:
    """Book two things, each with what undoes it, and wait for a person."""
    for thing in ("flight", "hotel"):
        ctx.on_undo(f"cancel {thing}", TOOL, retry=ONCE)
        await ctx.dispatch(f"book {thing}", TOOL, retry=ONCE)
    return await ctx.wait_for_signal("go")


#: What a trip does, and what undoes it.
BOOKED = ["book flight", "book hotel"]
UNDONE = ["cancel hotel", "cancel flight"]


def undos(history: list[JournalEntry]) -> list[tuple[int, str, str]]:
    """Position, name and state of what undid the run, in the order in which it ran."""
    return [(entry.position, entry.name, entry.state) for entry in reversed(history) if entry.position < 0]


class Agency(Tool):
    """Keeps the first call named `holds` until `held` is set; fails those named `refuses`."""

    def __init__(self, *, holds: str = "", refuses: str = "") -> None:
        super().__init__(held=asyncio.Event())
        self.holds = holds
        self.refuses = refuses
        self.holding = asyncio.Event()

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        self.calls.append(info)
        if info.name == self.holds and self.held is not None:
            self.holding.set()
            await self.held.wait()
        if info.name == self.refuses:
            raise LookupError("no such booking")
        self.finished += 1
        return info.name

    def let_go(self) -> None:
        assert self.held is not None
        self.held.set()


class CancelContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_cancel_parked_settles_without_signal(self, world: EngineWorld) -> None:
        """In the caller's transaction, with what people see; nothing has to run for it (C43)."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()

        assert await worker.cancel()

        assert (await world.run()).status is EngineStatus.CANCELLED
        assert (await world.run()).waits == ()
        assert await world.notes() == ["ended run cancelled"]
        assert await worker.signal("go") is SignalOutcome.TERMINAL

    async def test_cancel_needs_nothing_but_rows(self, world: EngineWorld) -> None:
        """No body, no handler is registered in the process that cancels (C45)."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        await worker.close()
        other = await world.worker()

        assert await other.cancel()
        assert (await world.run()).status is EngineStatus.CANCELLED

    async def test_cancel_of_a_pending_run(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})

        def both(tx: Tx) -> bool:
            worker.engine.start(tx, run_id="run", workflow="flow", input_={})
            return worker.engine.cancel(tx, "run")

        assert await worker.transact(both)
        await world.flushed(worker)
        assert (await world.run()).status is EngineStatus.CANCELLED
        assert await world.history() == []

    async def test_cancel_running_seen_at_next_step(self, world: EngineWorld) -> None:
        """A tool that runs finishes and its result is kept; the next primitive raises."""
        tool = Tool(held=asyncio.Event(), result=lambda _task, info: info.cancelled())
        worker = await world.worker(bodies={"flow": step_then_note(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        assert await worker.cancel()
        assert (await world.run()).status is EngineStatus.CANCELLING
        assert tool.held is not None
        tool.held.set()
        await world.until(EngineStatus.CANCELLED)

        assert tool.finished == 1
        entry = (await world.history())[0]
        assert (entry.name, entry.state, entry.body) == ("step", "done", True)
        assert await world.notes() == ["ended run cancelled"]

    async def test_cancel_stops_a_repeatable_step_at_once(self, world: EngineWorld) -> None:
        """A model call is told, may stop, and what it raises then is no failure of the step."""
        asked = asyncio.Event()
        seen: list[BaseException] = []

        async def model(task: JsonObject, info: TaskInfo) -> Json:
            stop = asyncio.Event()
            info.on_cancel(stop.set)
            asked.set()
            await stop.wait()
            raise ConnectionError("aborted")

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                return await ctx.dispatch("llm", TOOL, retry=Retry(attempts=3))
            except BaseException as error:
                seen.append(error)
                raise

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": model})
        await worker.start()
        await asked.wait()
        await worker.cancel()
        await world.until(EngineStatus.CANCELLED)

        assert [type(error) for error in seen] == [RunCancelled]
        assert [entry.state for entry in await world.history()] == ["started"]

    async def test_cancel_ends_the_wait_for_a_retry(self, world: EngineWorld) -> None:
        class Overloaded(Exception):
            transient = True

        def work(_task: JsonObject, _info: TaskInfo) -> Json:
            raise Overloaded

        worker = await world.worker(
            bodies={"flow": step_then_note(Retry(attempts=3))}, handlers={"tools": Tool(result=work)}
        )
        await worker.start()
        await world.settled(lambda: world.is_retrying(1))
        await worker.cancel()

        await world.until(EngineStatus.CANCELLED)

    async def test_no_effect_begins_after_cancel_was_answered(self, world: EngineWorld) -> None:
        """Cancelled by another process, of which this one has not heard yet: the mark is refused (C44)."""
        tool = Tool()
        computing, go = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            computing.set()
            await go.wait()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            async def policy(c: Context) -> Json:
                await slow()
                return await c.dispatch("refund", TOOL, retry=ONCE)

            return list(await ctx.parallel([policy]))

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await computing.wait()
        console = await world.worker(opened=False)
        assert await console.cancel()
        go.set()
        await world.until(EngineStatus.CANCELLED)

        assert tool.calls == []

    async def test_no_record_is_written_after_cancel_was_answered(self, world: EngineWorld) -> None:
        computing, go = asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            computing.set()
            await go.wait()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.record("card", writing("card"), compute=slow)

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await computing.wait()
        console = await world.worker(opened=False)
        await console.cancel()
        go.set()
        await world.until(EngineStatus.CANCELLED)

        assert await world.notes() == ["ended run cancelled"]

    async def test_raise_if_cancelled(self, world: EngineWorld) -> None:
        """A body that computes on its own can ask, and takes no position by it."""
        begun, go = asyncio.Event(), asyncio.Event()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.raise_if_cancelled()
            begun.set()
            await go.wait()
            ctx.raise_if_cancelled()
            return "not reached"

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await begun.wait()
        await worker.cancel()
        go.set()
        await world.until(EngineStatus.CANCELLED)

        assert await world.history() == []

    async def test_cancel_cascades_to_grandchildren(self, world: EngineWorld) -> None:
        worker = await world.worker(
            bodies={"flow": parent_of("child", workflow="middle"), "middle": parent_of("leaf"), "leaf": patient_leaf}
        )
        await worker.start()
        for run_id in ("run", "child", "leaf"):
            await world.parked(run_id)

        assert await worker.cancel()

        assert {(await world.run(run_id)).status for run_id in ("run", "child", "leaf")} == {EngineStatus.CANCELLED}
        assert sorted(await world.notes()) == [
            "ended child cancelled",
            "ended leaf cancelled",
            "ended run cancelled",
        ]

    async def test_cancel_vs_complete_first_terminal_wins(self, world: EngineWorld) -> None:
        """Cancelled while it was executing its last step: it ends cancelled, although the body returns."""
        begun, go = asyncio.Event(), asyncio.Event()

        async def body(_ctx: Context, _input: JsonObject) -> Json:
            begun.set()
            await go.wait()
            return "done"

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await begun.wait()
        assert await worker.cancel()
        go.set()
        run = await world.until(EngineStatus.CANCELLED)

        assert run.output is None
        await world.flushed(worker)
        assert [end[1] for end in worker.observer.ends] == [EngineStatus.CANCELLED]

    async def test_complete_vs_cancel_first_terminal_wins(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await worker.signal("go", 1)
        await world.output()

        assert not await worker.cancel()
        assert (await world.run()).status is EngineStatus.COMPLETED

    async def test_cancel_idempotent(self, world: EngineWorld) -> None:
        """While it is cancelling a second cancel is an echo; afterwards, and for a stranger, it is False."""
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": step_then_note(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        assert await worker.cancel()
        assert await worker.cancel()
        assert tool.held is not None
        tool.held.set()
        await world.until(EngineStatus.CANCELLED)

        assert not await worker.cancel()
        assert not await worker.cancel("nobody")
        await world.flushed(worker)
        assert len(worker.observer.ends) == 1

    async def test_cancel_while_about_to_park(self, world: EngineWorld) -> None:
        """The wait found nothing, its sibling still runs, then the cancel comes: it does not park."""
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(
                await ctx.parallel([lambda c: c.wait_for_signal("go"), lambda c: c.dispatch("slow", TOOL, retry=ONCE)])
            )

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.settled(lambda: world.waits_for("go"))
        await worker.cancel()
        assert tool.held is not None
        tool.held.set()
        await world.until(EngineStatus.CANCELLED)

        await world.flushed(worker)
        assert worker.observer.parks == []

    async def test_cancelling_survives_crash(self, world: EngineWorld) -> None:
        """The worker dies before it could settle: recovery does, and the body does not run again."""
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": step_then_note(READ)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await worker.cancel()
        await worker.crash()
        await world.past_lease()
        again = Tool()
        await world.worker(bodies={"flow": step_then_note(READ)}, handlers={"tools": again})
        await world.until(EngineStatus.CANCELLED)

        assert again.calls == []
        assert (await world.notes())[-1] == "ended run cancelled"

    async def test_cancelled_by_a_console_of_a_parked_run(self, world: EngineWorld) -> None:
        """A process that drives nothing cannot settle what people see: it marks the run, a worker settles it."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        console = await world.worker(opened=False)
        assert await console.cancel()
        await world.past_lease()
        await world.until(EngineStatus.CANCELLED)

        await world.flushed(worker)
        assert [end[:2] for end in worker.observer.ends] == [("run", EngineStatus.CANCELLED)]

    async def test_a_body_that_ends_as_cancelled_without_a_cancel_of_the_step(self, world: EngineWorld) -> None:
        """A tool that raises `RunCancelled` by itself has failed; nobody cancelled the run (C42)."""

        def work(_task: JsonObject, _info: TaskInfo) -> Json:
            raise RunCancelled("not this one")

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                return await ctx.dispatch("step", TOOL, retry=ONCE)
            except StepFailed as error:
                return error.error_type

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": Tool(result=work)})
        await worker.start()

        assert await world.output() == "RunCancelled"

    async def test_crash_between_cancel_and_the_next_step(self, world: EngineWorld) -> None:
        worker = await world.worker(
            bodies={"flow": parent_of("child"), "leaf": patient_leaf}, dies=Dies(label="test", after=True, nth=2)
        )
        await worker.start()
        await world.parked("child")
        await world.parked()
        cancel = asyncio.create_task(worker.cancel())
        await world.died(worker)
        cancel.cancel()
        await world.worker(bodies={"flow": parent_of("child"), "leaf": patient_leaf})

        assert {(await world.run(run_id)).status for run_id in ("run", "child")} == {EngineStatus.CANCELLED}


class CompensatingCancelContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_compensating_cancel_undoes_newest_first(self, world: EngineWorld) -> None:
        """Parked: it leaves its wait for good, is undone step by step, and only then people see it cancelled."""
        agency = Agency(holds="cancel flight")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()

        assert await worker.cancel(compensate=True)
        await agency.holding.wait()
        assert (await world.run()).status is EngineStatus.CANCELLING
        assert await world.notes() == []
        assert await worker.signal("go") is SignalOutcome.TERMINAL
        agency.let_go()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == BOOKED + UNDONE
        assert undos(await world.history()) == [(-1, "cancel hotel", "done"), (-2, "cancel flight", "done")]
        assert (await world.run()).waits == ()
        await world.flushed(worker)
        assert await world.notes() == ["ended run cancelled"]
        assert worker.observer.parks == [("run", True), ("run", False)]

    async def test_plain_cancel_undoes_nothing(self, world: EngineWorld) -> None:
        agency = Agency()
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel()

        assert (await world.run()).status is EngineStatus.CANCELLED
        assert agency.names == BOOKED

    async def test_compensating_cancel_without_undos(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()

        assert await worker.cancel(compensate=True)
        await world.until(EngineStatus.CANCELLED)
        assert not await worker.cancel(compensate=True)
        assert await world.notes() == ["ended run cancelled"]

    async def test_compensating_cancel_of_a_running_step(self, world: EngineWorld) -> None:
        """The booking that runs comes home; the next one does not begin, and has its undo all the same."""
        agency = Agency(holds="book flight")

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("cancel flight", TOOL, retry=ONCE)
            await ctx.dispatch("book flight", TOOL, retry=ONCE)
            ctx.on_undo("cancel hotel", TOOL, retry=ONCE)
            return await ctx.record("book hotel", writing("hotel"), compute=nothing)

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await agency.holding.wait()
        await worker.cancel(compensate=True)
        agency.let_go()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == ["book flight", *UNDONE]
        assert await world.notes() == ["ended run cancelled"]

    async def test_compensating_cancel_executes_nothing_new(self, world: EngineWorld) -> None:
        """A body that will not stop: no primitive behind the end of the journal leaves a trace."""
        agency, executed = Agency(), []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("undo", TOOL, retry=ONCE)
            try:
                return await ctx.wait_for_signal("go")
            except RunCancelled:
                more: list[Callable[[], Awaitable[object]]] = [
                    lambda: ctx.dispatch("more", TOOL, retry=READ),
                    lambda: ctx.record("more", writing("more"), compute=nothing),
                    lambda: ctx.wait_for_signal("more"),
                    lambda: ctx.child("more", workflow="leaf", run_id="child", input_={}),
                    lambda: ctx.start_child("more", workflow="leaf", run_id="detached", input_={}),
                    lambda: ctx.patched("more"),
                    lambda: ctx.parallel([lambda c: c.now()]),
                    ctx.now,
                ]
                for primitive in more:
                    with suppress(RunCancelled):
                        executed.append(await primitive())
                with suppress(RunCancelled):
                    ctx.raise_if_cancelled()
                    executed.append("on and on")
                return "not what the run becomes"

        worker = await world.worker(bodies={"flow": body, "leaf": patient_leaf}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        run = await world.until(EngineStatus.CANCELLED)

        assert executed == []
        assert run.output is None
        assert agency.names == ["undo"]
        assert [entry.position for entry in await world.history()] == [-1, 1]
        assert await world.notes() == ["ended run cancelled"]

    async def test_compensating_cancel_survives_crash(self, world: EngineWorld) -> None:
        """Killed in the middle of the second undo: the first is not repeated, the run is never pending again."""
        agency = Agency(holds="cancel flight")

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("cancel flight", TOOL, retry=READ)
            ctx.on_undo("cancel hotel", TOOL, retry=READ)
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        await worker.crash()
        assert (await world.run()).status is EngineStatus.CANCELLING
        await world.past_lease()
        again = Agency(holds="cancel flight")
        await world.worker(bodies={"flow": body}, handlers={"tools": again})
        await again.holding.wait()
        assert (await world.run()).status is EngineStatus.CANCELLING
        again.let_go()
        run = await world.until(EngineStatus.CANCELLED)

        assert agency.names == UNDONE
        assert [(info.name, info.attempt) for info in again.calls] == [("cancel flight", 2)]
        assert again.calls[0].idempotency_key == agency.calls[1].idempotency_key
        assert undos(await world.history()) == [(-1, "cancel hotel", "done"), (-2, "cancel flight", "done")]
        assert run.crashes == 1

    async def test_compensating_cancel_puts_an_undo_in_doubt(self, world: EngineWorld) -> None:
        """Killed in the middle of an undo that may not be repeated: nobody knows, and the other one still runs."""
        agency = Agency(holds="cancel hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        await worker.crash()
        await world.past_lease()
        again = Agency()
        await world.worker(bodies={"flow": trip}, handlers={"tools": again})
        await world.until(EngineStatus.CANCELLED)

        assert again.names == ["cancel flight"]
        assert undos(await world.history()) == [(-1, "cancel hotel", "doubt"), (-2, "cancel flight", "done")]

    async def test_compensating_cancel_survives_crash_before_undo(self, world: EngineWorld) -> None:
        """The worker dies in the step during which the cancel came: the next one undoes, and repeats no step."""
        agency = Agency(holds="book hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await agency.holding.wait()
        await worker.cancel(compensate=True)
        await worker.crash()
        await world.past_lease()
        again = Agency()
        await world.worker(bodies={"flow": trip}, handlers={"tools": again})
        await world.until(EngineStatus.CANCELLED)

        assert again.names == UNDONE

    async def test_failing_undo_does_not_stop_the_others(self, world: EngineWorld) -> None:
        agency = Agency(refuses="cancel hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        run = await world.until(EngineStatus.CANCELLED)

        assert undos(await world.history()) == [(-1, "cancel hotel", "failed"), (-2, "cancel flight", "done")]
        assert (await world.history())[1].body == {"type": "LookupError", "message": "no such booking"}
        assert run.error_type is None
        assert await world.notes() == ["ended run cancelled"]

    async def test_compensating_cancel_of_a_body_that_returns(self, world: EngineWorld) -> None:
        """It completes while it is cancelling: cancelled, and undone once."""
        agency = Agency(holds="book flight")

        async def body(ctx: Context, _input: JsonObject) -> Json:
            value = await ctx.dispatch("book flight", TOOL, retry=ONCE)
            ctx.on_undo("cancel flight", TOOL, retry=ONCE)
            return value

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await agency.holding.wait()
        await worker.cancel(compensate=True)
        agency.let_go()
        run = await world.until(EngineStatus.CANCELLED)

        assert agency.names == ["book flight", "cancel flight"]
        assert run.output is None

    async def test_compensating_cancel_of_a_body_that_continues_as_new(self, world: EngineWorld) -> None:
        begun, go = asyncio.Event(), asyncio.Event()
        agency = Agency()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("undo", TOOL, retry=ONCE)
            begun.set()
            await go.wait()
            raise ContinueAsNew({})

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await begun.wait()
        await worker.cancel(compensate=True)
        go.set()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == ["undo"]
        assert await world.look(lambda engine, tx: engine.get(tx, "run~1")) is None

    async def test_plain_cancel_does_not_skip_the_undo(self, world: EngineWorld) -> None:
        """Nor does a second compensating one undo again: while it is cancelling both are echoes."""
        agency = Agency(holds="cancel hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        assert await worker.cancel()
        assert await worker.cancel(compensate=True)
        await world.pass_time(timedelta(seconds=3))
        assert not agency.calls[-1].cancelled()
        agency.let_go()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == BOOKED + UNDONE
        await world.flushed(worker)
        assert len(worker.observer.ends) == 1

    async def test_compensation_is_added_to_a_cancel(self, world: EngineWorld) -> None:
        """Somebody cancelled, and says before the run has ended that it is to be undone."""
        agency = Agency(holds="book hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await agency.holding.wait()
        await worker.cancel()
        assert await worker.cancel(compensate=True)
        agency.let_go()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == BOOKED + UNDONE

    async def test_compensating_cancel_by_a_console(self, world: EngineWorld) -> None:
        """A process that drives nothing leaves the wish; a worker finds it."""
        agency = Agency()
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        console = await world.worker(opened=False)
        assert await console.cancel(compensate=True)
        await world.past_lease()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == BOOKED + UNDONE
        assert (await world.run()).crashes == 0

    async def test_compensating_cancel_knows_each_branch(self, world: EngineWorld) -> None:
        """A branch that waits does not hide what the branches beside it did.

        The later branch is undone first, whichever comes first when they are replayed.
        """
        agency = Agency()

        def booking(thing: str) -> Callable[[Context], Awaitable[Json]]:
            async def branch(ctx: Context) -> Json:
                await ctx.dispatch(f"book {thing}", TOOL, retry=ONCE)
                if thing == "flight":
                    await asyncio.sleep(0)
                ctx.on_undo(f"cancel {thing}", TOOL, retry=ONCE)
                return await ctx.record(thing, writing(thing), compute=nothing)

            return branch

        async def body(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("say sorry", TOOL, retry=ONCE)
            return await ctx.parallel([lambda c: c.wait_for_signal("go"), booking("flight"), booking("hotel")])

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await world.until(EngineStatus.CANCELLED)

        assert agency.names[2:] == [*UNDONE, "say sorry"]

    async def test_compensating_cancel_undoes_children_first(self, world: EngineWorld) -> None:
        agency = Agency(holds="cancel hotel")

        async def parent(ctx: Context, _input: JsonObject) -> Json:
            ctx.on_undo("say sorry", TOOL, retry=ONCE)
            return await ctx.child("trip", workflow="trip", run_id="trip", input_={})

        worker = await world.worker(bodies={"flow": parent, "trip": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked("trip")
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        await world.pass_time(timedelta(seconds=6))
        assert (await world.run()).status is EngineStatus.CANCELLING
        agency.let_go()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == [*BOOKED, *UNDONE, "say sorry"]
        assert await world.notes() == ["ended trip cancelled", "ended run cancelled"]

    async def test_child_cancelled_alone_is_undone_and_reaches_parent(self, world: EngineWorld) -> None:
        agency = Agency()
        bodies = {"flow": parent_of("trip", workflow="trip"), "trip": trip}
        worker = await world.worker(bodies=bodies, handlers={"tools": agency})
        await worker.start()
        await world.parked("trip")
        await world.parked()
        await worker.cancel("trip", compensate=True)

        assert await world.output() == ["cancelled trip"]
        assert agency.names == BOOKED + UNDONE

    async def test_compensating_cancel_of_a_circle(self, world: EngineWorld) -> None:
        """Two runs that join each other: neither waits for the other to be undone first."""
        agency = Agency()

        def joins(other: str, workflow: str) -> Body:
            async def body(ctx: Context, _input: JsonObject) -> Json:
                ctx.on_undo(f"undo {workflow}", TOOL, retry=ONCE)
                return await ctx.child(other, workflow=workflow, run_id=other, input_={})

            return body

        worker = await world.worker(
            bodies={"flow": joins("child", "back"), "back": joins("run", "flow")}, handlers={"tools": agency}
        )
        await worker.start()
        await world.parked("child")
        await world.parked()
        await worker.cancel(compensate=True)
        for run_id in ("run", "child"):
            await world.until(EngineStatus.CANCELLED, run_id)

        assert sorted(agency.names) == ["undo back", "undo flow"]

    async def test_compensating_cancel_of_changed_code_fails_until_retried(self, world: EngineWorld) -> None:
        """What undoes the run cannot be known: it says so, and once the code is back it is undone and cancelled."""

        async def changed(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.dispatch("book a train", TOOL, retry=ONCE)

        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": Agency()})
        await worker.start()
        await world.parked()
        await worker.close()
        agency = Agency()
        deployed = await world.worker(bodies={"flow": changed}, handlers={"tools": agency})
        await deployed.cancel(compensate=True)
        assert (await world.failed()).error_code == "replay_diverged"
        await deployed.close()
        rolled_back = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        assert await rolled_back.retry()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == UNDONE
        assert [entry.state for entry in await world.history()] == ["done"] * 5

    async def test_retry_of_an_undo_clears_no_failure(self, world: EngineWorld) -> None:
        """What the body did after a step had failed is undone, so the step must still have failed."""

        async def booking(ctx: Context) -> Json:
            try:
                return await ctx.dispatch("book hotel", TOOL, retry=ONCE)
            except StepFailed:
                ctx.on_undo("cancel the hold", TOOL, retry=ONCE)
                return None

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.parallel([booking, lambda c: c.wait_for_signal("go")])

        async def changed(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.record("other", writing("other"), compute=nothing)

        agency = Agency(refuses="book hotel")
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.close()
        deployed = await world.worker(bodies={"flow": changed}, handlers={"tools": agency})
        await deployed.cancel(compensate=True)
        await world.failed()
        await deployed.close()
        rolled_back = await world.worker(bodies={"flow": body}, handlers={"tools": agency})
        await rolled_back.retry()
        await world.until(EngineStatus.CANCELLED)

        assert agency.names == ["book hotel", "cancel the hold"]

    async def test_undo_that_kills_its_worker_ends_dead(self, world: EngineWorld) -> None:
        agency = Agency(holds="cancel hotel")
        limits = EngineLimits(crashes_max=1)
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency}, limits=limits)
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        await worker.crash()
        await world.past_lease()
        agency.let_go()
        again = await world.worker(bodies={"flow": trip}, handlers={"tools": agency}, limits=limits)
        await world.until(EngineStatus.DEAD)
        assert await again.retry()
        await world.until(EngineStatus.CANCELLED)

        assert undos(await world.history()) == [(-1, "cancel hotel", "doubt"), (-2, "cancel flight", "done")]

    async def test_drained_in_the_middle_of_an_undo(self, world: EngineWorld) -> None:
        """The undo that runs is finished, the next one is left to the next process, and no crash is counted."""
        agency = Agency(holds="cancel hotel")
        worker = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
        await worker.start()
        await world.parked()
        await worker.cancel(compensate=True)
        await agency.holding.wait()
        closing = asyncio.create_task(worker.engine.drain())
        await asyncio.sleep(0)
        agency.let_go()
        await closing
        assert (await world.run()).status is EngineStatus.CANCELLING
        again = Agency()
        await world.worker(bodies={"flow": trip}, handlers={"tools": again})
        await world.until(EngineStatus.CANCELLED)

        assert (agency.names, again.names) == ([*BOOKED, "cancel hotel"], ["cancel flight"])
        assert (await world.run()).crashes == 0
