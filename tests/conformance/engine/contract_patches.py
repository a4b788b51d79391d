"""Changing a body while runs of the old one are parked."""

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import Body, Context, EngineRun
from tests.conformance.engine.contract_positions import recording
from tests.conformance.engine.world import EngineWorld


async def original(ctx: Context, _input: JsonObject) -> Json:
    await recording("a")(ctx)
    await recording("b")(ctx)
    return await ctx.wait_for_signal("go")


async def patched(ctx: Context, _input: JsonObject) -> Json:
    await recording("a")(ctx)
    new = await ctx.patched("check-first")
    if new:
        await recording("check")(ctx)
    await recording("b")(ctx)
    return [new, await ctx.wait_for_signal("go")]


async def deprecated(ctx: Context, _input: JsonObject) -> Json:
    await recording("a")(ctx)
    await ctx.deprecate_patch("check-first")
    await recording("check")(ctx)
    await recording("b")(ctx)
    return ["always", await ctx.wait_for_signal("go")]


async def removed(ctx: Context, _input: JsonObject) -> Json:
    await recording("a")(ctx)
    await recording("check")(ctx)
    await recording("b")(ctx)
    return await ctx.wait_for_signal("go")


async def other_patch(ctx: Context, _input: JsonObject) -> Json:
    await recording("a")(ctx)
    return await ctx.patched("something-else")


class PatchesContract:
    """Subclass, give a `world` fixture, change nothing else."""

    async def test_patched_fresh_true(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": patched})
        await worker.start()
        await world.parked()

        assert [entry[1:] for entry in await world.names()] == [
            ("record", "a"),
            ("patch", "check-first"),
            ("record", "check"),
            ("record", "b"),
            ("deadline", "go"),
        ]

    async def test_patched_old_false_position_given_back(self, world: EngineWorld) -> None:
        await self._deploy(world, original, patched)

        assert await world.output() == [False, None]
        assert await world.notes() == ["a", "b"]
        assert [position for position, _, _ in await world.names()] == [1, 2, 3, 4]

    async def test_patched_marker_replay(self, world: EngineWorld) -> None:
        await self._deploy(world, patched, patched)

        assert await world.output() == [True, None]
        assert await world.notes() == ["a", "check", "b"]

    async def test_another_patch_at_the_marker_diverges(self, world: EngineWorld) -> None:
        await self._deploy(world, patched, other_patch)

        assert (await world.failed()).error_code == "replay_diverged"

    async def test_deprecate_then_remove(self, world: EngineWorld) -> None:
        """A marked run passes the deprecated call; removing it while marked runs live is noticed."""
        await self._deploy(world, patched, deprecated)
        assert await world.output() == ["always", None]

        run = await self._deploy(world, patched, removed, run_id="second")
        assert run.error_code == "replay_diverged"

        await self._deploy(world, deprecated, removed, run_id="third")
        assert await world.output("third") is None

    async def test_deprecated_call_writes_no_marker(self, world: EngineWorld) -> None:
        worker = await world.worker(bodies={"flow": deprecated})
        await worker.start()
        await world.parked()

        assert "patch" not in [kind for _, kind, _ in await world.names()]

    async def _deploy(self, world: EngineWorld, old: Body, new: Body, run_id: str = "run") -> EngineRun:
        """Park a run of the old body, wake it in a process that has the new one; the run at its end."""
        worker = await world.worker(bodies={"flow": old})
        await worker.start(run_id)
        await world.parked(run_id)
        await worker.close()
        other = await world.worker(bodies={"flow": new})
        await other.signal("go", run_id=run_id)

        async def ended() -> bool:
            return (await world.run(run_id)).status.is_terminal

        await world.settled(ended)
        await other.close()
        return await world.run(run_id)
