"""Child runs: started once, waited for without memory, and never lost."""

import asyncio

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ChildCancelled, StepFailed
from signoff.ports.engine import Body, Context, EngineLimits, EngineStatus
from tests.conformance.engine.world import ONCE, TOOL, EngineWorld, Tool, nothing, writing


def parent_of(*children: str, workflow: str = "leaf", input_: JsonObject | None = None) -> Body:
    """A body that joins these children in turn and tells how each ended."""

    async def body(ctx: Context, _input: JsonObject) -> Json:
        ends: list[Json] = []
        for child in children:
            try:
                ends.append(await ctx.child(child, workflow=workflow, run_id=child, input_=input_ or {"n": 1}))
            except ChildCancelled as error:
                ends.append(f"cancelled {error.run_id}")
            except StepFailed as error:
                ends.append(f"{error.error_type}: {error} ({error.error_code})")
        return ends

    return body


async def leaf(ctx: Context, input_: JsonObject) -> Json:
    return await ctx.record("leaf", writing("leaf", {"got": input_}), compute=nothing)


async def patient_leaf(ctx: Context, _input: JsonObject) -> Json:
    return await ctx.wait_for_signal("go")


class Broken(Exception):
    code = "broken"


async def broken_leaf(_ctx: Context, _input: JsonObject) -> Json:
    raise Broken("no luck")


class ChildrenContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_child_result(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": leaf})
        await worker.start()

        assert await world.output() == [{"got": {"n": 1}}]
        assert (await world.run("child")).parent_id == "run"
        assert await world.names() == [(1, "child", "child"), (2, "signal", "child:child")]

    async def test_a_waiting_parent_holds_no_slot(self, world: EngineWorld) -> None:
        """Concurrency 1, three parents each with a child: all end (C39)."""
        bodies = {"flow1": parent_of("a"), "flow2": parent_of("b"), "flow3": parent_of("c"), "leaf": leaf}
        worker = await world.worker(bodies=bodies, limits=EngineLimits(concurrency={"runs": 1}))
        for n in (1, 2, 3):
            await worker.start(f"run{n}", f"flow{n}")

        for n in (1, 2, 3):
            assert await world.output(f"run{n}") == [{"got": {"n": 1}}]

    async def test_child_id_stable_across_replay(self, world: EngineWorld) -> None:
        """However often the parent is replayed, the child is started once."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            result = await ctx.child("c", workflow="leaf", run_id="child", input_={})
            await ctx.wait_for_signal("go")
            return result

        worker = await world.worker(bodies={"flow": body, "leaf": leaf})
        await worker.start()
        await world.parked_on("go")
        await worker.crash()
        other = await world.worker(bodies={"flow": body, "leaf": leaf})
        await other.signal("go")
        await world.output()

        assert await world.notes() == ["leaf"]
        assert [run.id for run in await world.look(lambda engine, tx: engine.runs(tx))] == ["child", "run"]

    async def test_child_failure_catchable(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": broken_leaf})
        await worker.start()

        assert await world.output() == ["Broken: no luck (broken)"]

    async def test_child_start_failure_reaches_parent(self, world: EngineWorld) -> None:
        """An unknown workflow is the outcome of the call, the same on a replay; no run is left."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            for start in ("child", "start_child"):
                try:
                    await getattr(ctx, start)(start, workflow="nowhere", run_id=start, input_={})
                except StepFailed as error:
                    seen.append(f"{start} {error.error_type} {error.error_code}")
            return await ctx.wait_for_signal("go")

        seen: list[str] = []
        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await world.parked()
        await worker.signal("go")
        await world.output()

        assert seen == ["child UnknownWorkflow unknown_workflow", "start_child UnknownWorkflow unknown_workflow"] * 2
        assert [run.id for run in await world.look(lambda engine, tx: engine.runs(tx))] == ["run"]

    async def test_child_done_before_parent_waits(self, world: EngineWorld) -> None:
        """Started detached, ended, joined later: it ran once and its result is there."""
        tool = Tool(held=asyncio.Event())

        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.start_child("begin", workflow="leaf", run_id="child", input_={"n": 1})
            await ctx.dispatch("slow", TOOL, retry=ONCE)
            return await ctx.child("join", workflow="leaf", run_id="child", input_={"n": 1})

        worker = await world.worker(bodies={"flow": body, "leaf": leaf}, handlers={"tools": tool})
        await worker.start()
        await world.output("child")
        assert tool.held is not None
        tool.held.set()

        assert await world.output() == {"got": {"n": 1}}
        assert await world.notes() == ["leaf"]

    async def test_start_child_then_join_while_it_runs(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.start_child("begin", workflow="leaf", run_id="child", input_={})
            return await ctx.child("join", workflow="leaf", run_id="child", input_={})

        worker = await world.worker(bodies={"flow": body, "leaf": patient_leaf})
        await worker.start()
        await world.parked("child")
        await world.parked()
        await worker.signal("go", 5, run_id="child")

        assert await world.output() == 5

    async def test_a_child_of_another_run_is_refused(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": patient_leaf})
        await worker.start("first")
        await world.parked("first")
        await worker.start("second")

        output = await world.output("second")
        assert isinstance(output, list)
        assert "another run" in str(output[0])

    async def test_child_cancelled_alone_reaches_parent(self, world: EngineWorld) -> None:
        """It is an outcome of the parent's call, not the parent's own end (C42)."""
        worker = await world.worker(bodies={"flow": parent_of("child"), "leaf": patient_leaf})
        await worker.start()
        await world.parked("child")
        await world.parked()
        assert await worker.cancel("child")

        assert await world.output() == ["cancelled child"]

    async def test_children_of_one_batch(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(
                await ctx.parallel(
                    [
                        lambda c, n=n: c.child(n, workflow="leaf", run_id=n, input_={})  # type: ignore[misc]
                        for n in ("left", "right")
                    ]
                )
            )

        worker = await world.worker(bodies={"flow": body, "leaf": patient_leaf})
        await worker.start()
        for n in ("right", "left"):
            await world.parked(n)
        for n in ("right", "left"):
            await worker.signal("go", n, run_id=n)

        assert await world.output() == ["left", "right"]

    async def test_detached_child_outlives_its_parent(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.start_child("begin", workflow="leaf", run_id="child", input_={})
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body, "leaf": patient_leaf})
        await worker.start()
        await world.parked()
        await world.parked("child")
        await worker.cancel()
        await worker.signal("go", 5, run_id="child")

        assert await world.output("child") == 5
        assert (await world.run()).status is EngineStatus.CANCELLED

    async def test_retry_parent_and_failed_child_converge(self, world: EngineWorld) -> None:
        """The parent failed because its child did. Retrying the parent drives both again."""

        async def parent(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.child("c", workflow="leaf", run_id="child", input_={})

        worker = await world.worker(bodies={"flow": parent, "leaf": broken_leaf})
        await worker.start()
        await world.failed()
        await worker.close()
        other = await world.worker(bodies={"flow": parent, "leaf": leaf})
        assert await other.retry()

        assert await world.output() == {"got": {}}

    async def test_retry_failed_child_first_then_parent(self, world: EngineWorld) -> None:
        async def parent(ctx: Context, _input: JsonObject) -> Json:
            return await ctx.child("c", workflow="leaf", run_id="child", input_={})

        worker = await world.worker(bodies={"flow": parent, "leaf": broken_leaf})
        await worker.start()
        await world.failed()
        await worker.close()
        other = await world.worker(bodies={"flow": parent, "leaf": leaf})
        assert await other.retry("child")
        await world.output("child")
        assert await other.retry()

        assert await world.output() == {"got": {}}
        assert await world.notes() == ["ended child failed", "ended run failed", "leaf"]
