"""Dead workers, zombies, poison pills, and what operators do."""

import asyncio
from datetime import timedelta

import pytest

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InvalidInput, LeaseLost, UnknownWorkflow
from signoff.ports.engine import Context, EngineLimits, EngineStatus, SignalOutcome, TaskInfo
from signoff.ports.store import Tx
from tests.conformance.engine.contract_children import Broken, leaf, parent_of, patient_leaf
from tests.conformance.engine.contract_steps import dispatching, three_records
from tests.conformance.engine.contract_waits import one_wait
from tests.conformance.engine.world import ONCE, READ, TOOL, EngineWorld, Tool, nothing, writing

LIMITS = EngineLimits()


class RecoveryContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_dead_worker_run_taken_over_within_ttl(self, world: EngineWorld) -> None:
        """A worker beside the dead one finds the run by itself, once its lease is over and not before."""
        tool, again = Tool(held=asyncio.Event()), Tool(result=lambda _task, _info: "again")
        worker = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": again})
        await worker.crash()
        await world.pass_time(LIMITS.lease / 2)
        assert again.calls == []
        await world.pass_time(LIMITS.lease / 2 + 2 * LIMITS.sweep)

        assert await world.output() == {"value": "again"}
        assert (await world.run()).crashes == 1

    async def test_a_living_worker_keeps_its_lease(self, world: EngineWorld) -> None:
        tool, other = Tool(held=asyncio.Event()), Tool()
        worker = await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": other})
        for _ in range(12):
            await world.pass_time(timedelta(seconds=5))
            await world.flushed(worker)
        assert tool.held is not None
        tool.held.set()

        assert await world.output() == {"value": {"done": "step"}}
        assert other.calls == []
        assert (await world.run()).crashes == 0

    async def test_zombie_write_fenced(self, world: EngineWorld) -> None:
        """A worker that was paused until another had taken the run over cannot write any more."""
        zombie_thinks, zombie_goes, zombie_stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        successor_thinks, successor_goes = asyncio.Event(), asyncio.Event()
        zombie_saw: list[BaseException] = []

        async def zombie_body(ctx: Context, _input: JsonObject) -> Json:
            async def pause() -> None:
                zombie_thinks.set()
                await zombie_goes.wait()

            try:
                return await ctx.record("a", writing("zombie"), compute=pause)
            except BaseException as error:
                zombie_saw.append(error)
                raise
            finally:
                zombie_stopped.set()

        async def successor_body(ctx: Context, _input: JsonObject) -> Json:
            async def pause() -> None:
                successor_thinks.set()
                await successor_goes.wait()

            return await ctx.record("a", writing("successor"), compute=pause)

        zombie = await world.worker(bodies={"flow": zombie_body}, limits=EngineLimits(lease=timedelta(days=1)))
        await zombie.start()
        await zombie_thinks.wait()
        await world.expire("run")
        await world.worker(bodies={"flow": successor_body})
        await world.pass_time(timedelta(seconds=10))
        await successor_thinks.wait()
        zombie_goes.set()
        await zombie_stopped.wait()
        successor_goes.set()
        await world.output()
        await world.quiet(zombie)

        assert [type(error) for error in zombie_saw] == [LeaseLost]
        assert await world.notes() == ["successor"]

    async def test_an_attempt_that_was_overtaken_is_not_current(self, world: EngineWorld) -> None:
        attempts: asyncio.Queue[TaskInfo] = asyncio.Queue()
        end = asyncio.Event()

        async def handler(task: JsonObject, info: TaskInfo) -> Json:
            attempts.put_nowait(info)
            await end.wait()
            return None

        worker = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": handler})
        await worker.start()
        first = await attempts.get()
        assert await worker.transact(first.is_current)
        await worker.crash()
        await world.past_lease()
        successor = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": handler})
        second = await attempts.get()

        assert not await successor.transact(first.is_current)
        assert await successor.transact(second.is_current)
        end.set()
        await world.output()
        assert not await successor.transact(second.is_current)

    async def test_poison_pill_becomes_dead_with_hook_once(self, world: EngineWorld) -> None:
        limits = EngineLimits(crashes_max=3)
        for crash in range(3):
            tool = Tool(held=asyncio.Event())
            worker = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": tool}, limits=limits)
            if crash == 0:
                await worker.start()
            await tool.started.wait()
            await worker.crash()
            await world.past_lease()
        tool = Tool()
        last = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": tool}, limits=limits)
        run = await world.until(EngineStatus.DEAD)
        await world.pass_time(timedelta(minutes=1))
        await world.flushed(last)

        assert run.error_code == "run_dead"
        assert tool.calls == []
        assert [end[:2] for end in last.observer.ends] == [("run", EngineStatus.DEAD)]

    async def test_a_dead_child_reaches_its_parent(self, world: EngineWorld) -> None:
        async def deadly(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.dispatch("step", TOOL, retry=READ)

        bodies = {"flow": parent_of("child"), "leaf": deadly}
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies=bodies, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.parked()
        await worker.crash()
        await world.past_lease()
        await world.worker(bodies=bodies, handlers={"tools": tool}, limits=EngineLimits(crashes_max=1))

        output = await world.output()
        assert isinstance(output, list)
        assert str(output[0]).startswith("Dead: ")

    async def test_retry_dead_resets_budget(self, world: EngineWorld) -> None:
        """Dead, retried: the count begins anew, and the next sweep does not kill it again."""
        limits = EngineLimits(crashes_max=1)
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": tool}, limits=limits)
        await worker.start()
        await tool.started.wait()
        await worker.crash()
        await world.past_lease()
        again = Tool(held=asyncio.Event())
        other = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": again}, limits=limits)
        await world.until(EngineStatus.DEAD)
        assert await other.retry()
        await again.started.wait()
        run = await world.run()
        assert (run.crashes, run.error, run.error_code) == (0, None, None)
        await world.pass_time(timedelta(seconds=30))
        assert again.held is not None
        again.held.set()

        assert await world.output() == {"value": {"done": "step"}}

    async def test_retry_failed_runs_the_failed_part_again(self, world: EngineWorld) -> None:
        """What succeeded stays; the step that the run failed with runs again, as a later attempt."""
        broken = True

        def work(_task: JsonObject, info: TaskInfo) -> Json:
            if broken and info.name == "b":
                raise Broken("no luck")
            return info.attempt

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return [await ctx.dispatch(name, TOOL, retry=ONCE) for name in "abc"]

        tool = Tool(result=work)
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        run = await world.failed()
        assert (run.error_type, run.error, run.error_code) == ("Broken", "no luck", "broken")
        broken = False
        assert await worker.retry()

        assert await world.output() == [1, 2, 1]
        assert tool.names == ["a", "b", "b", "c"]

    async def test_retry_keeps_a_failure_that_the_run_went_on_from(self, world: EngineWorld) -> None:
        """It was caught and reported; what comes after it in the journal is built upon it."""

        def work(_task: JsonObject, info: TaskInfo) -> Json:
            if info.name == "tool" or len(tool.calls) == 2:
                raise Broken("no luck")
            return None

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                await ctx.dispatch("tool", TOOL, retry=ONCE)
            except Exception as error:  # noqa: BLE001  # what a tool loop does
                await ctx.record("persist:toolfail", writing(str(error)), compute=nothing)
            return await ctx.dispatch("llm", TOOL, retry=READ)

        tool = Tool(result=work)
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await world.failed()
        assert await worker.retry()
        await world.output()

        assert tool.names == ["tool", "llm", "llm"]

    async def test_retry_does_not_repeat_what_is_in_doubt(self, world: EngineWorld) -> None:
        """An operator's retry is no licence to run an action twice."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.dispatch("refund", TOOL, retry=ONCE)

        tool = Tool(held=asyncio.Event())
        limits = EngineLimits(crashes_max=1)
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool}, limits=limits)
        await worker.start()
        await tool.started.wait()
        await worker.crash()
        await world.past_lease()
        again = Tool()
        other = await world.worker(bodies={"flow": body}, handlers={"tools": again}, limits=limits)
        await world.until(EngineStatus.DEAD)
        assert await other.retry()

        assert (await world.failed()).error_code == "in_doubt"
        assert again.calls == []

    async def test_retry_of_a_live_or_completed_run_is_refused(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait})
        await worker.start()
        await world.parked()
        assert not await worker.retry()
        await worker.signal("go")
        await world.output()
        assert not await worker.retry()
        assert not await worker.retry("nobody")

    async def test_recovery_does_not_count_dispatched_wait(self, world: EngineWorld) -> None:
        """A run that waits, for a person or for a child, is not a run that killed somebody."""
        bodies = {"flow": parent_of("child"), "leaf": patient_leaf}
        worker = await world.worker(bodies=bodies)
        await worker.start()
        await world.parked("child")
        await world.parked()
        for _ in range(3):
            await worker.crash()
            await world.past_lease()
            worker = await world.worker(bodies=bodies)
            await world.pass_time(timedelta(minutes=1))
        assert [(await world.run(run_id)).crashes for run_id in ("run", "child")] == [0, 0]
        await worker.signal("go", 1, run_id="child")

        assert await world.output() == [1]

    async def test_an_observer_that_breaks_does_not_keep_a_run_alive(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait, "broken": parent_of()})

        def ended(*_: object) -> None:
            raise RuntimeError("the observer is broken")

        worker.observer.ended = ended  # type: ignore[assignment, method-assign]

        async def failing(_ctx: Context, _input: JsonObject) -> Json:
            raise Broken("no luck")

        worker.engine.register("flow", failing)
        await worker.start()

        assert (await world.failed()).error == "no luck"

    async def test_start_idempotent_by_id(self, world: EngineWorld) -> None:
        """Whatever its state and whatever the input: a second start is a no-op."""
        worker = await world.worker(bodies={"flow": one_wait})
        assert await worker.start(input_={"n": 1})
        assert not await worker.start(input_={"n": 2})
        await worker.signal("go", 1)
        await world.output()
        assert not await worker.start(input_={"n": 3})

        run = await world.run()
        assert (run.input, run.status) == ({"n": 1}, EngineStatus.COMPLETED)

    async def test_start_unknown_version_refused(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow@2": one_wait})
        with pytest.raises(UnknownWorkflow):
            await worker.start(workflow="flow@1")

        assert await world.look(lambda engine, tx: engine.get(tx, "run")) is None

    async def test_a_start_that_rolls_back_leaves_nothing(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": three_records})

        def start_and_fail(tx: Tx) -> None:
            worker.engine.start(tx, run_id="run", workflow="flow", input_={})
            raise LookupError

        with pytest.raises(LookupError):
            await worker.transact(start_and_fail)
        await world.pass_time(timedelta(seconds=10))

        assert await world.look(lambda engine, tx: engine.get(tx, "run")) is None

    async def test_a_version_that_left_waits_for_it_to_come_back(self, world: EngineWorld) -> None:
        """A run of a workflow that is not registered is not touched, and others are not held up by it."""
        old = await world.worker(bodies={"flow@1": one_wait})
        await old.start(workflow="flow@1")
        await world.parked()
        await old.close()
        new = await world.worker(bodies={"flow@2": three_records})
        await new.signal("go", 1)
        await new.start("other", "flow@2")
        await world.output("other")
        await world.pass_time(timedelta(seconds=30))
        assert (await world.run()).status is EngineStatus.PENDING
        await world.worker(bodies={"flow@1": one_wait})

        assert await world.output() == 1

    async def test_continue_as_new_ids_and_parent(self, world: EngineWorld) -> None:
        """`run`, `run~1`, `run~2`, each with a fresh journal; who waits for the first is served by its end."""

        async def counting(ctx: Context, input_: JsonObject) -> Json:
            left = input_["left"]
            assert isinstance(left, int)
            await ctx.record("count", writing(f"{ctx.run_id} {left}"), compute=nothing)
            if left:
                ctx.continue_as_new({"left": left - 1})
            return "end"

        worker = await world.worker(bodies={"flow": parent_of("run~0", workflow="counting", input_={"left": 2})})
        worker.engine.register("counting", counting)
        await worker.start("parent")

        assert await world.output("parent") == [None]
        assert await world.output("run~2") == "end"
        assert await world.notes() == ["run~0 2", "run~1 1", "run~2 0"]
        assert await world.names("run~2") == [(1, "record", "count")]

    async def test_a_pending_cancel_wins_over_continue_as_new(self, world: EngineWorld) -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def body(ctx: Context, _input: JsonObject) -> Json:
            begun.set()
            await go.wait()
            ctx.continue_as_new({})

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await begun.wait()
        await worker.cancel()
        go.set()
        await world.until(EngineStatus.CANCELLED)

        assert await world.look(lambda engine, tx: engine.get(tx, "run~1")) is None

    async def test_namespace_isolation_on_get_list_signal_cancel(self, world: EngineWorld) -> None:
        """A worker of one namespace neither sees nor drives, wakes or stops the runs of another."""
        red = await world.worker(bodies={"flow": one_wait, "leaf": leaf}, namespace="red")
        blue = await world.worker(bodies={"flow": one_wait}, namespace="blue")
        await red.start()
        await world.parked()
        await world.pass_time(timedelta(seconds=10))

        def look(tx: Tx) -> tuple[object, ...]:
            engine = blue.engine
            return engine.get(tx, "run"), engine.history(tx, "run"), engine.runs(tx), engine.runs(tx, namespace="red")

        assert await blue.store.read(look) == (None, [], [], [])
        assert await blue.signal("go") is SignalOutcome.UNKNOWN
        assert not await blue.cancel()
        with pytest.raises(InvalidInput):
            await blue.start("other", namespace="red")
        assert (await world.run()).namespace == "red"
        assert (await world.run()).status is EngineStatus.SUSPENDED
        assert [run.id for run in await world.look(lambda engine, tx: engine.runs(tx, namespace="red"))] == ["run"]

    async def test_a_child_inherits_the_namespace_of_its_parent(self, world: EngineWorld) -> None:
        """Driven by an operator's worker, which serves all namespaces."""
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": leaf})
        await worker.start(namespace="red")
        await world.output()

        assert (await world.run("child")).namespace == "red"

    async def test_prune_only_terminal_and_complete(self, world: EngineWorld) -> None:
        """Ended runs go with all they left; parked ones stay, however old."""
        worker = await world.worker(bodies={"flow": one_wait, "records": three_records})
        await worker.start("old", "records")
        await worker.start("parked")
        await world.output("old")
        await world.parked("parked")
        world.clock.advance(timedelta(days=30))
        await worker.start("new", "records")
        await world.output("new")
        before = world.clock.now() - timedelta(days=1)

        pruned = await worker.transact(lambda tx: worker.engine.prune(tx, before=before))

        assert pruned == ["old"]
        assert [run.id for run in await world.look(lambda engine, tx: engine.runs(tx))] == ["new", "parked"]
        assert await worker.signal("go", run_id="old") is SignalOutcome.UNKNOWN
        assert await worker.start("old", "records")
        assert await world.output("old") == ["a", "b", "c"]

    async def test_runs_are_listed_by_id_and_status(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": one_wait, "records": three_records})
        for run_id in ("a", "b", "c"):
            await worker.start(run_id)
            await world.parked(run_id)
        await worker.start("d", "records")
        await world.output("d")

        def page(tx: Tx) -> list[str]:
            runs = worker.engine.runs(tx, status=EngineStatus.SUSPENDED, limit=2, after_id="a")
            return [run.id for run in runs]

        assert await worker.store.read(page) == ["b", "c"]

    async def test_drain_waits_for_post_settle(self, world: EngineWorld) -> None:
        """After `drain` nothing is written: the parent has heard of its child, and nothing begins any more."""
        tool = Tool(held=asyncio.Event())

        async def child(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.dispatch("step", TOOL, retry=READ)

        bodies = {"flow": parent_of("child"), "leaf": child}
        worker = await world.worker(bodies=bodies, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.parked()
        draining = asyncio.create_task(worker.engine.drain())
        await asyncio.sleep(0)
        assert tool.held is not None
        tool.held.set()
        await draining
        commits = await world.commits(worker)
        world.clock.advance(timedelta(hours=1))
        for _ in range(10):
            await asyncio.sleep(0)

        assert await world.commits(worker) == commits
        assert (await world.run("child")).status in (EngineStatus.COMPLETED, EngineStatus.PENDING)
        await world.worker(bodies=bodies, handlers={"tools": tool})
        assert await world.output() == [{"done": "step"}]
        assert tool.names == ["step"]

    async def test_drain_lets_runs_go_without_counting_a_crash(self, world: EngineWorld) -> None:
        """The step under way ends and is kept; the run stops before the next and is pending."""
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return [await ctx.dispatch(name, TOOL, retry=ONCE) for name in "ab"]

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        draining = asyncio.create_task(worker.engine.drain())
        await asyncio.sleep(0)
        assert tool.held is not None
        tool.held.set()
        await draining
        run = await world.run()
        assert (run.status, run.crashes, run.owner) == (EngineStatus.PENDING, 0, None)
        await world.worker(bodies={"flow": body}, handlers={"tools": tool})

        assert await world.output() == [{"done": "a"}, {"done": "b"}]
        assert tool.names == ["a", "b"]

    async def test_drain_ends_by_force_what_does_not_end(self, world: EngineWorld) -> None:
        """An action that is cut off stays started: it is in doubt, and never quietly tried again."""
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        draining = asyncio.create_task(worker.engine.drain())
        await asyncio.sleep(0)
        world.clock.advance(timedelta(minutes=5))
        await draining
        assert (await world.run()).status is EngineStatus.PENDING
        again = Tool()
        await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": again})

        output = await world.output()
        assert isinstance(output, dict)
        assert output["in_doubt"] == "step"
        assert again.calls == []

    async def test_recovery_takes_each_run_by_itself(self, world: EngineWorld) -> None:
        """Ten parked runs, one with a broken journal: nine complete, one is reported (C55)."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.record("a", writing("a"), compute=nothing)
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body})
        ids = [f"run{n}" for n in range(10)]
        await worker.start_many(ids)
        await world.settled(lambda: world.count(EngineStatus.SUSPENDED, 10))
        await world.change_journal("run3", 1, "{broken")
        await worker.crash()
        other = await world.worker(bodies={"flow": body})
        for run_id in ids:
            await other.signal("go", run_id, run_id=run_id)

        for run_id in ids:
            if run_id != "run3":
                assert await world.output(run_id) == run_id
        assert (await world.failed("run3")).error_code == "journal_corrupt"
