"""Positions, replay, and what happens when code and journal disagree."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import ReplayDiverged, StepFailed
from signoff.ports.engine import Body, Context, EngineRun
from tests.conformance.engine.world import ONCE, READ, TOOL, EngineWorld, Tool, nothing, writing

_HOUR = timedelta(hours=1)


def recording(name: str) -> Callable[[Context], Awaitable[Json]]:
    return lambda ctx: ctx.record(name, writing(name, name), compute=nothing)


def in_order(*primitives: Callable[[Context], Awaitable[Json]]) -> Body:
    """A body that awaits these one after the other, then waits for "go"."""

    async def body(ctx: Context, _input: JsonObject) -> Json:
        values = [await primitive(ctx) for primitive in primitives]
        return [*values, await ctx.wait_for_signal("go")]

    return body


class PositionsContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_positions_taken_at_call_not_at_await(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            calls = [ctx.record(name, writing(name, name), compute=nothing) for name in "abc"]
            return [await call for call in reversed(calls)]

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        assert await world.output() == ["c", "b", "a"]
        assert await world.names() == [(1, "record", "a"), (2, "record", "b"), (3, "record", "c")]

    async def test_primitives_launched_in_one_tick_go_together(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(await asyncio.gather(*(ctx.dispatch(name, TOOL, retry=READ) for name in "abc")))

        tool = Tool(result=lambda _, info: info.name)
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()

        assert await world.output() == ["a", "b", "c"]
        assert [position for position, _, _ in await world.names()] == [1, 2, 3]

    async def test_parallel_batch_positions_in_call_order(self, world: EngineWorld) -> None:
        """The slow branch comes first in the journal and in the result, although it ends last (C21)."""
        second_done = asyncio.Event()

        async def first(ctx: Context) -> Json:
            await second_done.wait()
            return await ctx.record("first", writing("first", 1), compute=nothing)

        async def second(ctx: Context) -> Json:
            value = await ctx.record("second", writing("second", 2), compute=nothing)
            second_done.set()
            return value

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(await ctx.parallel([first, second]))

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        assert await world.output() == [1, 2]
        assert await world.notes() == ["second", "first"]
        assert [(kind, name) for _, kind, name in await world.names()] == [
            ("parallel", "2"),
            ("record", "first"),
            ("record", "second"),
        ]

    async def test_branches_have_positions_of_their_own(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.parallel([recording("left"), recording("right")])
            return await ctx.record("after", writing("after"), compute=nothing)

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await world.output()

        assert await world.names() == [
            (1, "parallel", "2"),
            (2, "record", "left"),
            (2 + 1024, "record", "right"),
            (2 + 2048, "record", "after"),
        ]

    async def test_a_branch_that_uses_up_its_positions_says_so(self, world: EngineWorld) -> None:
        async def greedy(ctx: Context) -> Json:
            for _ in range(1025):
                ctx.now()
            return None

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(await ctx.parallel([greedy]))

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        run = await world.failed()
        assert (run.error_type, run.error_code) == ("PositionsExhausted", "positions_exhausted")

    async def test_an_empty_batch_is_no_work(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            nobody: list[Callable[[Context], Awaitable[Json]]] = []
            return list(await ctx.parallel(nobody))

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        assert await world.output() == []

    async def test_replay_returns_same_value_and_same_error(self, world: EngineWorld) -> None:
        """Tuples, odd text and errors look the same before and after the journal."""
        seen: list[object] = []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            value = await ctx.record(
                "value",
                lambda tx, _: {"tuple": (1, 2.5), "text": "\x00\ud800é", "none": None},  # type: ignore[dict-item]
                compute=nothing,
            )
            try:
                await ctx.dispatch("broken", TOOL, retry=ONCE)
            except StepFailed as error:
                failure = (error.name, error.error_type, str(error), error.error_code)
            seen.append((value, failure, await ctx.now()))
            return await ctx.wait_for_signal("go")

        def broken(_task: JsonObject, _info: object) -> Json:
            raise KeyError("no such order")

        worker = await world.worker(bodies={"flow": body}, handlers={"tools": Tool(result=broken)})
        await worker.start()
        await world.parked()
        world.clock.advance(_HOUR)
        await worker.signal("go")
        await world.output()

        first, second = seen
        assert first == second
        assert repr(first) == repr(second)
        assert isinstance(second, tuple)
        value, failure, _ = second
        assert value == {"tuple": [1, 2.5], "text": "\x00\ufffdé", "none": None}
        assert failure == ("broken", "KeyError", "'no such order'", None)

    async def test_step_rename_raises_with_both_names(self, world: EngineWorld) -> None:
        run = await self._after_deploy(world, [recording("old")], [recording("new")])

        assert run.error_code == "replay_diverged"
        assert "record:old" in str(run.error)
        assert "record:new" in str(run.error)
        assert "position 1" in str(run.error)

    async def test_inserted_step_detected(self, world: EngineWorld) -> None:
        run = await self._after_deploy(
            world, [recording("a"), recording("b")], [recording("a"), recording("new"), recording("b")]
        )

        assert "position 2" in str(run.error)

    async def test_removed_step_detected(self, world: EngineWorld) -> None:
        run = await self._after_deploy(world, [recording("a"), recording("b")], [recording("b")])

        assert run.error_code == "replay_diverged"

    @pytest.mark.parametrize("found", ["record", "dispatch", "signal", "child", "now", "parallel", "start_child"])
    @pytest.mark.parametrize("recorded", ["record", "dispatch", "signal", "child", "now", "parallel", "start_child"])
    async def test_kind_change_detected(self, world: EngineWorld, recorded: str, found: str) -> None:
        """A signal in place of a record, a child in place of a signal … none of them goes unnoticed."""
        if recorded == found:
            return
        primitives: dict[str, Callable[[Context], Awaitable[Json]]] = {
            "record": recording("x"),
            "dispatch": lambda ctx: ctx.dispatch("x", TOOL, retry=READ),
            "signal": lambda ctx: ctx.wait_for_signal("x"),
            "child": lambda ctx: ctx.child("x", workflow="leaf", run_id="leaf", input_={}),
            "start_child": lambda ctx: ctx.start_child("x", workflow="leaf", run_id="leaf", input_={}),
            "now": lambda ctx: ctx.now(),  # type: ignore[dict-item, return-value]
            "parallel": lambda ctx: ctx.parallel([recording("x")]),
        }

        run = await self._after_deploy(world, [primitives[recorded]], [primitives[found]], before=("x",))

        assert run.error_code == "replay_diverged"
        assert "position 1" in str(run.error)

    async def test_a_body_that_ends_early_is_detected(self, world: EngineWorld) -> None:
        async def short(ctx: Context, _input: JsonObject) -> Json:
            return await recording("a")(ctx)

        worker = await world.worker(bodies={"flow": in_order(recording("a"), recording("b"))})
        await worker.start()
        await world.parked()
        await worker.close()
        other = await world.worker(bodies={"flow": short})
        await other.signal("go")

        run = await world.failed()
        assert "record:b" in str(run.error)
        assert "end" in str(run.error)

    async def test_nondeterminism_not_swallowed_by_except_exception(self, world: EngineWorld) -> None:
        """The later primitives raise the same object; the run fails with the first disagreement."""
        seen: list[BaseException] = []

        async def changed(ctx: Context, _input: JsonObject) -> Json:
            for name in ("new", "newer"):
                try:
                    await recording(name)(ctx)
                except Exception:  # noqa: BLE001  # what a tool loop does
                    return "swallowed"
                except BaseException as error:  # noqa: BLE001  # what it must not do
                    seen.append(error)
            return "swallowed"

        run = await self._after_deploy_body(world, [recording("old")], changed)

        assert run.error_code == "replay_diverged"
        assert isinstance(seen[0], ReplayDiverged)
        assert seen[0] is seen[1]
        assert (seen[0].run_id, seen[0].position, seen[0].expected, seen[0].found) == (
            "run",
            1,
            "record:old",
            "record:new",
        )

    async def test_no_journal_write_after_nondeterminism(self, world: EngineWorld) -> None:
        async def changed(ctx: Context, _input: JsonObject) -> Json:
            try:
                return await recording("new")(ctx)
            except BaseException:
                await ctx.record("persist:fail", writing("persist:fail"), compute=nothing)
                raise

        await self._after_deploy_body(world, [recording("old")], changed)

        assert await world.names() == [(1, "record", "old"), (2, "deadline", "go")]
        assert "persist:fail" not in await world.notes()

    async def test_a_sibling_under_way_writes_nothing_after_nondeterminism(self, world: EngineWorld) -> None:
        """One branch diverges while the other's tool still runs: its result is not journaled."""
        tool = Tool(held=asyncio.Event())

        async def changed(ctx: Context, _input: JsonObject) -> Json:
            async def left(branch: Context) -> Json:
                return await branch.dispatch("slow", TOOL, retry=ONCE)

            async def right(branch: Context) -> Json:
                await tool.started.wait()
                assert tool.held is not None
                try:
                    return await recording("new")(branch)
                finally:
                    tool.held.set()

            return list(await ctx.parallel([left, right]))

        async def before(ctx: Context, _input: JsonObject) -> Json:
            async def idle(_: Context) -> Json:
                return None

            await ctx.parallel([idle, recording("old")])
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": before})
        await worker.start()
        await world.parked()
        await worker.close()
        other = await world.worker(bodies={"flow": changed}, handlers={"tools": tool})
        await other.signal("go")

        run = await world.failed()
        assert run.error_code == "replay_diverged"
        assert [entry.state for entry in await world.history() if entry.name == "slow"] == ["started"]

    async def test_stream_closed_after_nondeterminism(self, world: EngineWorld) -> None:
        """What people see is settled in the engine's own transaction, so that no reader waits for ever."""
        await self._after_deploy(world, [recording("old")], [recording("new")])

        assert (await world.notes())[-1] == "ended run failed"

    async def test_a_diverged_run_goes_on_when_the_code_is_rolled_back(self, world: EngineWorld) -> None:
        await self._after_deploy(world, [recording("old")], [recording("new")])
        worker = await world.worker(bodies={"flow": in_order(recording("old"))})

        assert await worker.retry()

        assert await world.output() == ["old", None]
        assert await world.notes() == ["old", "ended run failed"]

    async def _after_deploy(
        self,
        world: EngineWorld,
        old: list[Callable[[Context], Awaitable[Json]]],
        new: list[Callable[[Context], Awaitable[Json]]],
        before: tuple[str, ...] = (),
    ) -> EngineRun:
        return await self._after_deploy_body(world, old, in_order(*new), before=before)

    async def _after_deploy_body(
        self,
        world: EngineWorld,
        old: list[Callable[[Context], Awaitable[Json]]],
        new: Body,
        before: tuple[str, ...] = (),
    ) -> EngineRun:
        """Run the old body until it waits for "go", deploy the new one, wake it; the run as it ended."""
        tool = Tool()
        worker = await world.worker(bodies={"flow": in_order(*old), "leaf": leaf}, handlers={"tools": tool})
        await worker.start()
        for name in before:
            await worker.signal(name)

        await world.parked_on("go")
        await worker.close()
        other = await world.worker(bodies={"flow": new, "leaf": leaf}, handlers={"tools": tool})
        await other.signal("go")
        return await world.failed()


async def leaf(_ctx: Context, _input: JsonObject) -> Json:
    return "leaf"
