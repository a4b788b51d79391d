"""Cancelling: at once while parked, at the next primitive while running, and never undone by a late result."""

import asyncio

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import RunCancelled, StepFailed
from signoff.ports.engine import Body, Context, EngineStatus, Retry, SignalOutcome, TaskInfo
from signoff.ports.store import Tx
from tests.conformance.engine.contract_children import parent_of, patient_leaf
from tests.conformance.engine.contract_waits import one_wait
from tests.conformance.engine.world import ONCE, READ, TOOL, Dies, EngineWorld, Tool, nothing, writing


def step_then_note(retry: Retry) -> Body:
    async def body(ctx: Context, _input: JsonObject) -> Json:
        value = await ctx.dispatch("step", TOOL, retry=retry)
        return await ctx.record("after", writing("after", value), compute=nothing)

    return body


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
        worker = await world.worker(bodies={"flow": step_then_note(ONCE)}, handlers={"tool": tool})
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

        worker = await world.worker(bodies={"flow": body}, handlers={"tool": model})
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
            bodies={"flow": step_then_note(Retry(attempts=3))}, handlers={"tool": Tool(result=work)}
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

        worker = await world.worker(bodies={"flow": body}, handlers={"tool": tool})
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
        worker = await world.worker(bodies={"flow": step_then_note(ONCE)}, handlers={"tool": tool})
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

        worker = await world.worker(bodies={"flow": body}, handlers={"tool": tool})
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
        worker = await world.worker(bodies={"flow": step_then_note(READ)}, handlers={"tool": tool})
        await worker.start()
        await tool.started.wait()
        await worker.cancel()
        await worker.crash()
        await world.past_lease()
        again = Tool()
        await world.worker(bodies={"flow": step_then_note(READ)}, handlers={"tool": again})
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

        worker = await world.worker(bodies={"flow": body}, handlers={"tool": Tool(result=work)})
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
