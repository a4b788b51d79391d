"""Records and dispatched steps: what runs again after a crash, what never does, and how failures are kept."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InDoubt, ModelError, StepFailed
from signoff.ports.engine import Body, Context, EngineLimits, EngineStatus, Retry, Task, TaskInfo
from signoff.ports.store import Tx
from tests.conformance.engine.world import (
    ONCE,
    READ,
    TOOL,
    Dies,
    EngineWorld,
    Tool,
    Worker,
    note,
    nothing,
    writing,
)


async def three_records(ctx: Context, _input: JsonObject) -> Json:
    return [await ctx.record(name, writing(name, name), compute=nothing) for name in "abc"]


def dispatching(retry: Retry, name: str = "step") -> Body:
    """A body of one step, that tells how the step ended."""

    async def body(ctx: Context, _input: JsonObject) -> Json:
        try:
            value = await ctx.dispatch(name, TOOL, retry=retry)
        except InDoubt as error:
            return {"in_doubt": error.name, "attempt": error.attempt, "started_at": error.started_at}
        except StepFailed as error:
            return {"failed": str(error), "type": error.error_type}
        return {"value": value}

    return body


def failing(error: Exception, times: int = 1_000_000) -> Callable[[JsonObject, TaskInfo], Json]:
    """A tool's work that fails so many times, then says in which attempt it worked."""

    def work(_task: JsonObject, info: TaskInfo) -> Json:
        if info.attempt <= times:
            raise error
        return info.attempt

    return work


class StepsContract:
    """Subclass, give a `world` fixture, change nothing else."""

    @pytest.mark.parametrize("error", [None, ModelError("no")])
    async def test_what_an_action_came_to_is_durable_before_the_body_goes_on(
        self, world: EngineWorld, error: ModelError | None
    ) -> None:
        """Until then a worker that dies leaves in doubt what has long happened."""
        states: list[str] = []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            with suppress(StepFailed):
                await ctx.dispatch("refund", TOOL, retry=ONCE)
            states.extend(entry.state for entry in await world.history())
            return None

        tool = Tool() if error is None else Tool(result=failing(error))
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await world.output()

        assert states == ["done" if error is None else "failed"]

    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("label", ["a", "b", "c", "engine:end"])
    async def test_tx_step_exactly_once_in_commit_gap(self, world: EngineWorld, label: str, after: bool) -> None:
        """Die before or after the commit of any record: its rows are there once."""
        await world.worker(bodies={"flow": three_records}, dies=Dies(label=label, after=after))
        await self._recovered(world, {"flow": three_records})

        assert await world.output() == ["a", "b", "c"]
        assert await world.notes() == ["a", "b", "c"]

    async def test_completed_step_never_reruns_after_a_crash(self, world: EngineWorld) -> None:
        """Three steps, a crash after each in turn: no step that has a result runs again."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            for name in "abc":
                await ctx.dispatch(name, TOOL, retry=ONCE)
                await ctx.record(f"after {name}", writing(name), compute=nothing)
            return None

        tool = Tool()
        for name in "abc":
            worker = await world.worker(
                bodies={"flow": body}, handlers={"tools": tool}, dies=Dies(label=f"after {name}", after=True)
            )
            if name == "a":
                await worker.start()
            await world.died(worker)
            await world.past_lease()
        await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await world.output()

        assert tool.names == ["a", "b", "c"]

    async def test_inflight_step_reruns_at_most_once_per_crash(self, world: EngineWorld) -> None:
        """A repeatable step that was under way runs again, as the next attempt with the same key."""
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await world.flushed(worker)
        await worker.crash()
        await world.past_lease()
        again = Tool(result=lambda _, info: info.attempt)
        await world.worker(bodies={"flow": dispatching(READ)}, handlers={"tools": again})

        assert await world.output() == {"value": 2}
        assert [info.attempt for info in (*tool.calls, *again.calls)] == [1, 2]
        assert tool.calls[0].idempotency_key == again.calls[0].idempotency_key

    async def test_a_repeatable_step_with_an_effect_is_marked_before_it_begins(self, world: EngineWorld) -> None:
        """Its start is durable when the work begins; a worker that dies then leaves an attempt that counts."""
        retry = Retry(repeatable=True, marked_first=True)
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(retry)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await worker.crash()

        assert [(entry.name, entry.state) for entry in await world.history()] == [("step", "started")]

    async def test_a_step_that_may_not_repeat_is_in_doubt_after_a_crash(self, world: EngineWorld) -> None:
        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        started_at = world.clock.now()
        await worker.crash()
        await world.past_lease()
        again = Tool()
        await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": again})

        assert await world.output() == {"in_doubt": "step", "attempt": 1, "started_at": started_at.isoformat()}
        assert again.calls == []

    async def test_doubt_is_the_same_on_a_replay(self, world: EngineWorld) -> None:
        seen: list[str] = []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                await ctx.dispatch("step", TOOL, retry=ONCE)
            except InDoubt as error:
                seen.append(f"{error} {error.attempt} {error.started_at}")
            return await ctx.wait_for_signal("go")

        tool = Tool(held=asyncio.Event())
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await tool.started.wait()
        await worker.crash()
        await world.past_lease()
        other = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await world.parked()
        await other.signal("go")
        await world.output()

        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert [entry.state for entry in await world.history() if entry.name == "step"] == ["doubt"]

    async def test_failed_step_memoised_not_rerun(self, world: EngineWorld) -> None:
        """A tool that failed, was caught and reported does not get a second chance from a replay."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                await ctx.dispatch("step", TOOL, retry=ONCE)
            except StepFailed as error:
                await ctx.record("persist:toolfail", writing(str(error)), compute=nothing)
            return await ctx.wait_for_signal("go")

        tool = Tool(result=failing(ValueError("boom"), times=1))
        worker = await world.worker(bodies={"flow": body}, handlers={"tools": tool})
        await worker.start()
        await world.parked()
        await worker.signal("go")
        await world.output()

        assert tool.names == ["step"]
        assert await world.notes() == ["boom"]

    async def test_failed_record_is_kept_with_its_code(self, world: EngineWorld) -> None:
        """An error of `compute` or `write` is an outcome; what `write` did until then is undone."""

        class Spent(Exception):
            code = "quota_exceeded"

        def write(tx: Tx, _computed: object) -> Json:
            note(tx, "half")
            raise Spent("no more")

        seen: list[tuple[str, str, str | None]] = []

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                await ctx.record("quota", write, compute=nothing)
            except StepFailed as error:
                seen.append((error.error_type, str(error), error.error_code))
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body})
        await worker.start()
        await world.parked()
        await worker.signal("go")
        await world.output()

        assert seen == [("Spent", "no more", "quota_exceeded")] * 2
        assert await world.notes() == []

    async def test_transient_failures_are_tried_again_in_place(self, world: EngineWorld) -> None:
        """Waits of 1 s, then 2 s; the next attempt and its time are in the journal meanwhile."""
        retry = Retry(attempts=3, backoff=timedelta(seconds=1), factor=2)
        tool = Tool(result=failing(ModelError("overloaded", transient=True), times=2))
        worker = await world.worker(bodies={"flow": dispatching(retry)}, handlers={"tools": tool})
        await worker.start()
        for attempt, wait in ((1, 1), (2, 2)):
            await world.settled(lambda attempt=attempt: world.is_retrying(attempt))  # type: ignore[misc]
            entry = (await world.history())[0]
            assert isinstance(entry.body, dict)
            due = world.clock.now() + timedelta(seconds=wait)
            assert str(entry.body["next_at"])[:22] <= due.isoformat()
            world.clock.advance(timedelta(seconds=wait))

        assert await world.output() == {"value": 3}
        assert [info.attempt for info in tool.calls] == [1, 2, 3]

    async def test_the_last_attempt_fails_for_good(self, world: EngineWorld) -> None:
        retry = Retry(attempts=2, backoff=timedelta(0))
        tool = Tool(result=failing(ModelError("overloaded", transient=True)))
        worker = await world.worker(bodies={"flow": dispatching(retry)}, handlers={"tools": tool})
        await worker.start()

        assert await world.output() == {"failed": "overloaded", "type": "ModelError"}
        assert len(tool.calls) == 2

    async def test_other_failures_are_not_tried_again(self, world: EngineWorld) -> None:
        tool = Tool(result=failing(ModelError("bad key", transient=False)))
        worker = await world.worker(bodies={"flow": dispatching(Retry(attempts=5))}, handlers={"tools": tool})
        await worker.start()

        assert await world.output() == {"failed": "bad key", "type": "ModelError"}
        assert len(tool.calls) == 1

    async def test_a_crash_neither_loses_nor_shortens_the_wait_for_a_retry(self, world: EngineWorld) -> None:
        retry = Retry(attempts=2, backoff=timedelta(hours=2), backoff_max=timedelta(hours=2))
        tool = Tool(result=failing(ModelError("overloaded", transient=True), times=1))
        worker = await world.worker(bodies={"flow": dispatching(retry)}, handlers={"tools": tool})
        await worker.start()
        await world.settled(lambda: world.is_retrying(1))
        await worker.crash()
        await world.past_lease()
        await world.worker(bodies={"flow": dispatching(retry)}, handlers={"tools": tool})
        await world.until(EngineStatus.RUNNING)
        await world.pass_time(timedelta(minutes=1))
        assert len(tool.calls) == 1
        world.clock.advance(timedelta(hours=2))

        assert await world.output() == {"value": 2}

    async def test_a_handler_that_cancels_itself_has_failed(self, world: EngineWorld) -> None:
        """An inner cancellation is an outcome of that call, the run goes on (C42)."""

        async def handler(task: JsonObject, info: TaskInfo) -> Json:
            raise asyncio.CancelledError

        worker = await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": handler})
        await worker.start()

        output = await world.output()
        assert isinstance(output, dict)
        assert output["type"] == "CancelledError"

    async def test_a_compute_that_cancels_itself_has_failed(self, world: EngineWorld) -> None:
        async def cancelling() -> None:
            raise asyncio.CancelledError

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                await ctx.record("policy", writing("never"), compute=cancelling)
            except StepFailed as error:
                return error.error_type
            return None

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        assert await world.output() == "CancelledError"

    @pytest.mark.parametrize("kind", ["record", "dispatch"])
    async def test_oversize_payload_refused_with_step_name(self, world: EngineWorld, kind: str) -> None:
        """The body gets the refusal as this step's failure, and nothing of it is tried again."""
        run, calls = await self._refused(world, kind, "x" * 2000, EngineLimits(entry_bytes_max=1000))

        assert run == {"name": "big", "type": "TooLarge", "code": "too_large", "named": True}
        assert calls == 1

    @pytest.mark.parametrize("kind", ["record", "dispatch"])
    async def test_non_json_result_refused_terminally(self, world: EngineWorld, kind: str) -> None:
        run, calls = await self._refused(world, kind, object(), EngineLimits())

        assert run == {"name": "big", "type": "NotJson", "code": "not_json", "named": True}
        assert calls == 1

    async def test_output_that_is_not_json_fails_the_run(self, world: EngineWorld) -> None:
        async def body(_ctx: Context, _input: JsonObject) -> Json:
            return {"nan": float("nan")}

        worker = await world.worker(bodies={"flow": body})
        await worker.start()

        assert (await world.failed()).error_type == "NotJson"

    async def test_no_code_execution_from_stored_payload(self, world: EngineWorld) -> None:
        """A pickle in the journal is text that is not JSON: this run is set aside, the others go on (C55)."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.record("a", writing("a"), compute=nothing)
            return await ctx.wait_for_signal("go")

        worker = await world.worker(bodies={"flow": body})
        for run_id in ("bad", "good"):
            await worker.start(run_id)
            await world.parked(run_id)
        await world.change_journal("bad", 1, "gASVIQAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAZ0b3VjaCB4lIWUUpQu")
        for run_id in ("bad", "good"):
            await worker.signal("go", run_id=run_id)

        await world.output("good")
        run = await world.failed("bad")
        assert run.error_code == "journal_corrupt"
        await world.flushed(worker)
        assert [end[:2] for end in worker.observer.ends] == [("bad", EngineStatus.FAILED)]

    async def test_dispatched_step_runs_in_group_only(self, world: EngineWorld) -> None:
        async def body(ctx: Context, _input: JsonObject) -> Json:
            await ctx.dispatch("ask", Task(group="llm", input={"q": 1}), retry=READ)
            return await ctx.dispatch("do", Task(group="tools", input={}), retry=READ)

        llm, tool = Tool(), Tool()
        worker = await world.worker(bodies={"flow": body}, handlers={"llm": llm, "tools": tool})
        await worker.start()
        await world.output()

        assert (llm.names, tool.names) == (["ask"], ["do"])

    async def test_a_group_runs_no_more_tasks_than_it_has_slots(self, world: EngineWorld) -> None:
        """A step that queues has not started: no mark, so that a crash does not put it in doubt."""

        async def body(ctx: Context, _input: JsonObject) -> Json:
            return list(
                await ctx.parallel([lambda c, n=n: c.dispatch(n, TOOL, retry=ONCE) for n in "ab"])  # type: ignore[misc]
            )

        tool = Tool(held=asyncio.Event())
        worker = await world.worker(
            bodies={"flow": body}, handlers={"tools": tool}, limits=EngineLimits(concurrency={"runs": 1, "tools": 1})
        )
        await worker.start()
        await tool.started.wait()
        assert [name for _, kind, name in await world.names() if kind == "dispatch"] == ["a"]
        assert tool.held is not None
        tool.held.set()
        await world.output()

        assert tool.names == ["a", "b"]

    async def test_dispatched_step_waits_for_absent_worker(self, world: EngineWorld) -> None:
        """Nobody serves the group yet: the step waits, unmarked, until somebody does.

        An engine whose workers are other processes waits for one of them; the embedded one for `serve`.
        """
        worker = await world.worker(bodies={"flow": dispatching(ONCE)})
        await worker.start()
        await world.until(EngineStatus.RUNNING)
        assert await world.history() == []
        worker.engine.serve("tools", Tool())

        assert await world.output() == {"value": {"done": "step"}}

    async def _recovered(self, world: EngineWorld, bodies: dict[str, Body]) -> Worker:
        """Start a run on the worker that dies, let it die, and bring up the next one."""
        dying = world.workers[-1]
        await dying.start()
        await world.died(dying)
        await world.past_lease()
        return await world.worker(bodies=bodies)

    async def _refused(self, world: EngineWorld, kind: str, value: object, limits: EngineLimits) -> tuple[Json, int]:
        calls = 0

        def produce() -> Json:
            nonlocal calls
            calls += 1
            return value  # type: ignore[return-value]

        async def body(ctx: Context, _input: JsonObject) -> Json:
            try:
                if kind == "record":
                    await ctx.record("big", lambda _tx, _: produce(), compute=nothing)
                else:
                    await ctx.dispatch("big", TOOL, retry=READ)
            except StepFailed as error:
                await ctx.wait_for_signal("go")
                return {
                    "name": error.name,
                    "type": error.error_type,
                    "code": error.error_code,
                    "named": "'big'" in str(error),
                }
            return None

        worker = await world.worker(
            bodies={"flow": body}, handlers={"tools": Tool(result=lambda _task, _info: produce())}, limits=limits
        )
        await worker.start()
        await world.parked()
        await worker.signal("go")
        return await world.output(), calls
