"""Signals, deadlines and parking."""

import asyncio
import gc
import random  # noqa: TID251  # the order in which a test's people click
import weakref
from datetime import datetime, timedelta

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import RunSuspended, SignalTimeout
from signoff.ports.engine import Context, EngineStatus, SignalOutcome
from signoff.ports.store import Tx
from tests.conformance.engine.world import ONCE, TOOL, Dies, EngineWorld, Tool, nothing, writing

MINUTE = timedelta(minutes=1)


async def one_wait(ctx: Context, _input: JsonObject) -> Json:
    return await ctx.wait_for_signal("go")


async def two_waits(ctx: Context, _input: JsonObject) -> Json:
    return [await ctx.wait_for_signal("go"), await ctx.wait_for_signal("go")]


async def timed_wait(ctx: Context, input_: JsonObject) -> Json:
    """Waits a minute from its start for "go", then says what it got, and waits for "end"."""
    deadline = datetime.fromisoformat(str(input_["now"])) + MINUTE
    try:
        got: Json = {"got": await ctx.wait_for_signal("go", deadline=deadline)}
    except SignalTimeout:
        got = "timeout"
    await ctx.record("branch", writing(str(got)), compute=nothing)
    await ctx.wait_for_signal("end")
    return got


class WaitsContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_a_wait_takes_two_positions(self, world: EngineWorld) -> None:
        async def body(ctx: Context, input_: JsonObject) -> Json:
            await ctx.wait_for_signal("plain")
            await ctx.wait_for_signal("timed", deadline=world.clock.now() + MINUTE)
            return await ctx.record("after", writing("after"), compute=nothing)

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await worker.signal("plain")
        await worker.signal("timed")
        await world.output()

        assert await world.names() == [
            (1, "deadline", "plain"),
            (2, "signal", "plain"),
            (3, "deadline", "timed"),
            (4, "signal", "timed"),
            (5, "record", "after"),
        ]

    async def test_signal_before_wait_buffered(self, world: EngineWorld) -> None:
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.dispatch("slow", TOOL, retry=ONCE)
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        assert await worker.signal("go", 7) is SignalOutcome.ACCEPTED
        assert tool.held is not None
        tool.held.set()

        assert await world.output() == 7
        await world.flushed(worker)
        assert worker.observer.parks == []

    async def test_signal_before_run_scheduled(self, world: EngineWorld) -> None:
        """Start and signal in one transaction: the run has them both or neither."""
        worker = await world.worker(bodies={"flow": one_wait})

        def both(tx: Tx) -> SignalOutcome:
            worker.engine.start(tx, run_id="run", workflow="flow", input_={})
            return worker.engine.signal(tx, "run", "go", "early", dedup_key="1")

        assert await worker.transact(both) is SignalOutcome.ACCEPTED
        assert await world.output() == "early"

    async def test_signal_dedup_key(self, world: EngineWorld) -> None:
        """The second click is a reported duplicate, and the next wait of this name does not get it."""
        worker = await world.worker(bodies={"flow": two_waits})
        await worker.start()
        await world.parked()

        assert await worker.signal("go", 1, key="click") is SignalOutcome.ACCEPTED
        assert await worker.signal("go", 2, key="click") is SignalOutcome.DUPLICATE
        await world.parked()
        assert await worker.signal("go", 3, key="other") is SignalOutcome.ACCEPTED
        assert await world.output() == [1, 3]

    async def test_signal_second_decision_rejected(self, world: EngineWorld) -> None:
        """What comes after the end is told apart from what never had a run."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await worker.signal("go", "approve", key="call_1")
        await world.output()

        assert await worker.signal("go", "reject", key="call_1") is SignalOutcome.TERMINAL
        assert await worker.signal("go", run_id="nobody") is SignalOutcome.UNKNOWN
        assert (await world.run()).output == "approve"

    async def test_signals_scoped_by_run(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        for run_id in ("left", "right"):
            await worker.start(run_id)
            await world.parked(run_id)
        await worker.signal("go", "R", run_id="right", key="same")
        assert await world.output("right") == "R"
        assert (await world.run("left")).status is EngineStatus.SUSPENDED
        await worker.signal("go", "L", run_id="left", key="same")

        assert await world.output("left") == "L"

    async def test_signal_race_random_60(self, world: EngineWorld) -> None:
        """Signals that arrive before, during and after the wait's registration: none is lost, none comes twice."""
        order = random.Random(60)
        worker = await world.worker(bodies={"flow": two_waits})

        async def click(n: int, name: str, after: int) -> None:
            for _ in range(after):
                await asyncio.sleep(0)
            await worker.signal("go", name, run_id=f"run{n}", key=name)

        async with asyncio.TaskGroup() as group:
            for n in range(60):
                await worker.start(f"run{n}")
                for name in "ab":
                    group.create_task(click(n, name, order.randrange(40)))
        outputs = [await world.output(f"run{n}") for n in range(60)]

        assert {tuple(sorted(output)) for output in outputs} == {("a", "b")}  # type: ignore[arg-type, type-var]

    async def test_signal_stranded_by_crash_healed(self, world: EngineWorld) -> None:
        """A signal from a process that dies right after the commit, before it could wake anybody."""
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        sender = await world.worker(opened=False, dies=Dies(label="test", after=True))
        send = asyncio.create_task(sender.signal("go", "late"))
        await world.died(sender)
        send.cancel()
        await world.pass_time(timedelta(seconds=10))

        assert await world.output() == "late"

    async def test_wait_timeout(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": timed_wait})
        await worker.start(input_={"now": world.clock.now().isoformat()})
        run = await world.parked()
        assert (run.wake_at, run.waits) == (world.clock.now() + MINUTE, ("go",))
        world.clock.advance(MINUTE)
        await world.parked_on("end")

        assert await world.notes() == ["timeout"]

    async def test_wait_timeout_deadline_survives_restart(self, world: EngineWorld) -> None:
        """The first execution's deadline counts, also after a restart and for code that would say another."""
        worker = await world.worker(bodies={"flow": timed_wait})
        await worker.start(input_={"now": world.clock.now().isoformat()})
        deadline = (await world.parked()).wake_at
        await worker.close()
        world.clock.advance(MINUTE / 2)

        async def later(ctx: Context, _input: JsonObject) -> Json:
            return await timed_wait(ctx, {"now": world.clock.now().isoformat()})

        await world.worker(bodies={"flow": later})
        await world.pass_time(MINUTE / 2)
        await world.parked_on("end")

        assert deadline == world.clock.now()
        assert await world.notes() == ["timeout"]

    async def test_timeout_outcome_stays_after_late_signal(self, world: EngineWorld) -> None:
        """Approved after it expired, then replayed: the branch that was taken stays."""
        worker = await world.worker(bodies={"flow": timed_wait})
        await worker.start(input_={"now": world.clock.now().isoformat()})
        await world.parked()
        world.clock.advance(MINUTE)
        await world.parked_on("end")
        assert await worker.signal("go", "approve") is SignalOutcome.ACCEPTED
        await worker.close()
        other = await world.worker(bodies={"flow": timed_wait})
        await other.signal("end")

        assert await world.output() == "timeout"

    async def test_a_signal_just_before_the_deadline_counts(self, world: EngineWorld) -> None:
        """It was there when the run woke, so it wins, however late the worker was."""
        worker = await world.worker(bodies={"flow": timed_wait})
        await worker.start(input_={"now": world.clock.now().isoformat()})
        await world.parked()
        await worker.close()
        sender = await world.worker(opened=False)
        await sender.signal("go", "approve")
        world.clock.advance(timedelta(hours=1))
        other = await world.worker(bodies={"flow": timed_wait})
        await other.signal("end")

        assert await world.output() == {"got": "approve"}

    async def test_none_payload_differs_from_timeout(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": timed_wait})
        await worker.start(input_={"now": world.clock.now().isoformat()})
        await worker.signal("go", None)
        await worker.signal("end")

        assert await world.output() == {"got": None}

    async def test_two_waits_in_one_batch_any_order(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(await ctx.parallel([lambda c: c.wait_for_signal("a"), lambda c: c.wait_for_signal("b")]))

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        assert (await world.parked()).waits == ("a", "b")
        await worker.signal("b", 2)
        await world.parked_on("a")
        await worker.signal("a", 1)

        assert await world.output() == [1, 2]

    async def test_executed_sibling_of_parked_wait_not_rerun(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(
                await ctx.parallel(
                    [lambda c: c.wait_for_signal("go"), lambda c: c.dispatch("charge", TOOL, retry=ONCE)]
                )
            )

        tool = Tool(result=lambda _task, _info: "charged")
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await world.parked()
        await worker.signal("go", "yes")

        assert await world.output() == ["yes", "charged"]
        assert tool.names == ["charge"]

    async def test_batch_settles_before_park(self, world: EngineWorld) -> None:
        """The wait found nothing, the tool still runs: the run parks only when the tool is done."""
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(
                await ctx.parallel([lambda c: c.wait_for_signal("go"), lambda c: c.dispatch("slow", TOOL, retry=ONCE)])
            )

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.settled(lambda: world.waits_for("go"))
        assert (await world.run()).status is EngineStatus.RUNNING
        assert tool.held is not None
        tool.held.set()
        await world.parked()

        assert [entry.state for entry in await world.history() if entry.name == "slow"] == ["done"]

    async def test_a_plain_gather_settles_before_park_too(self, world: EngineWorld) -> None:
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(await asyncio.gather(ctx.wait_for_signal("go"), ctx.dispatch("slow", TOOL, retry=ONCE)))

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.settled(lambda: world.waits_for("go"))
        assert (await world.run()).status is EngineStatus.RUNNING
        assert tool.held is not None
        tool.held.set()
        await world.parked()
        await worker.signal("go", 1)

        assert await world.output() == [1, {"done": "slow"}]
        assert tool.names == ["slow"]

    async def test_suspend_passes_through_except_exception_and_finally(self, world: EngineWorld) -> None:
        """A tool loop's catch-all does not see it, and what its `finally` asks for is not journaled (C22)."""
        caught: list[Exception] = []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                return await ctx.wait_for_signal("go")
            except Exception as error:  # noqa: BLE001  # what a tool loop does
                caught.append(error)
                return None
            finally:
                await ctx.record("tidy", writing("tidy"), compute=nothing)

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await world.parked()

        assert caught == []
        assert await world.names() == [(1, "deadline", "go")]
        assert await world.notes() == []

    async def test_a_body_that_swallows_its_suspension_waits_all_the_same(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                return await ctx.wait_for_signal("go")
            except RunSuspended:
                return "swallowed"

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await world.parked()
        await worker.signal("go", "real")

        assert await world.output() == "real"

    async def test_suspend_holds_no_memory_1000_parked(self, world: EngineWorld) -> None:
        """A parked run is rows: no task, no timer, none of its body's objects."""

        class Heavy:
            pass

        alive: weakref.WeakSet[Heavy] = weakref.WeakSet()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            heavy = Heavy()
            alive.add(heavy)
            got = await ctx.wait_for_signal("go", deadline=world.clock.now() + timedelta(days=30))
            return [str(type(heavy).__name__), got]

        worker = await world.worker(bodies={"flow": body})
        await worker.start("first")
        await world.parked("first")
        tasks, timers = len(asyncio.all_tasks()), len(world.clock._timers)
        await worker.start_many([f"run{n}" for n in range(1000)])
        await world.settled(lambda: world.count(EngineStatus.SUSPENDED, 1001))
        await world.flushed(worker)  # behind the last park, whose task then ends
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()

        assert len(alive) == 0
        assert len(asyncio.all_tasks()) <= tasks
        assert len(world.clock._timers) <= timers + 3

    async def test_parked_run_resumes_on_other_process(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        await worker.crash()
        other = await world.worker(bodies={"flow": one_wait})
        await other.signal("go", "there")

        assert await world.output() == "there"

    async def test_another_process_is_heard_within_a_poll(self, world: EngineWorld) -> None:
        """A console that drives nothing starts and signals; the worker finds out by itself."""
        await world.worker(bodies={"flow": one_wait})
        console = await world.worker(bodies={"flow": one_wait}, opened=False)
        await console.start()
        await world.pass_time(timedelta(seconds=2))
        await world.parked()
        await console.signal("go", 1)
        await world.pass_time(timedelta(seconds=2))

        assert await world.output() == 1

    async def test_restart_with_parked_runs_does_no_work(self, world: EngineWorld) -> None:
        """A new process drives no parked run, whatever their number, until something happens to one."""
        bodies = 0

        async def body(ctx: Context, input_: JsonObject) -> Json:
            nonlocal bodies
            bodies += 1
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body})
        for n in range(50):
            await worker.start(f"run{n:02}")
        await world.settled(lambda: world.count(EngineStatus.SUSPENDED, 50))
        await worker.close()
        bodies = 0
        other = await world.worker(bodies={"flow": body})
        await world.pass_time(timedelta(minutes=1))
        await other.signal("go", run_id="run07")
        await world.output("run07")

        assert bodies == 1
        assert {run.fence for run in await world.look(lambda engine, tx: engine.runs(tx)) if run.id != "run07"} == {1}

    async def test_the_observer_hears_of_parking_and_going_on(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        await worker.signal("go")
        await world.output()

        await world.flushed(worker)
        assert worker.observer.parks == [("run", True), ("run", False)]
