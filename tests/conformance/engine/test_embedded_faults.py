"""The embedded engine when its database, or its process, lets it down at the worst moment."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import InDoubt, StoreBusy
from signoff.ports.engine import Body, Context, EngineLimits, EngineStatus, Retry, TaskInfo
from signoff.ports.store import Tx
from signoff.testing.clock import START
from tests.conformance.engine.contract_cancel import Agency, trip
from tests.conformance.engine.contract_children import leaf
from tests.conformance.engine.contract_steps import dispatching, three_records
from tests.conformance.engine.contract_waits import one_wait
from tests.conformance.engine.world import (
    ONCE,
    READ,
    TOOL,
    Dies,
    EmbeddedWorker,
    EmbeddedWorld,
    Tool,
    Worker,
    nothing,
    sqlite_url,
    writing,
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EmbeddedWorld]:
    async with EmbeddedWorld.on(sqlite_url(tmp_path)) as world:
        yield world


async def let_go(world: EmbeddedWorld) -> bool:
    """Whether the run was claimed, and went back to pending; it must not have gone on."""
    run = await world.run()
    assert run.status in (EngineStatus.PENDING, EngineStatus.RUNNING)
    return run.status is EngineStatus.PENDING and run.fence > 0


async def ask_then_write(ctx: Context, _input: JsonObject) -> Json:
    answer = await ctx.dispatch("llm", TOOL, retry=READ)
    await ctx.record("step", writing(f"answer {answer}"), compute=nothing)
    return answer


async def ask_then_return(ctx: Context, _input: JsonObject) -> Json:
    return await ctx.dispatch("llm", TOOL, retry=READ)


async def ask_the_time_then_write(ctx: Context, _input: JsonObject) -> Json:
    answer = 1 if await ctx.now() == START else 2
    await ctx.record("step", writing(f"answer {answer}"), compute=nothing)
    return answer


def lose(worker: Worker, label: str) -> None:
    """Lose the next piece with this label that nobody waits for; what follows is not lost."""
    submit = worker.store.transact_soon
    lost = False

    def transact_soon(submitted: str, work: Callable[[Tx], None]) -> None:
        nonlocal lost
        if submitted == label and not lost:
            lost = True
        else:
            submit(submitted, work)

    worker.store.transact_soon = transact_soon  # type: ignore[assignment, method-assign]


def refuse(worker: Worker, label: str, times: int = 1) -> None:
    """Let the database be too busy for the next transactions with this label."""
    transact = worker.store.transact
    left = times

    async def busy(submitted: str, work: Callable[[Tx], object]) -> object:
        nonlocal left
        if submitted == label and left:
            left -= 1
            raise StoreBusy("disk full")
        return await transact(submitted, work)

    worker.store.transact = busy  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (ask_then_write, "dispatch llm"),
        (ask_then_write, "dispatch llm done"),
        (ask_then_return, "dispatch llm done"),
        (ask_the_time_then_write, "now "),
    ],
)
async def test_nothing_is_built_upon_a_result_that_got_lost(world: EmbeddedWorld, body: Body, label: str) -> None:
    """The body has seen the first answer, the database has not: what the body does with it is refused.

    The run begins anew from what is journaled, asks again, and goes on with the answer that is journaled.
    """
    asked = Counter[str]()

    def answer(_task: JsonObject, info: TaskInfo) -> int:
        asked[info.name] += 1
        return asked[info.name]

    worker = await world.worker(bodies={"flow": body}, handlers={"tools": Tool(result=answer)})
    lose(worker, label)
    await worker.start()
    await world.settled(lambda: let_go(world))
    assert await world.notes() == []
    await world.pass_time(timedelta(seconds=2))

    assert await world.output() == 2
    assert "answer 1" not in await world.notes()
    assert (await world.run()).crashes == 0


@pytest.mark.parametrize("retry", [READ, ONCE], ids=["read", "action"])
async def test_a_later_result_does_not_stand_for_one_that_got_lost(world: EmbeddedWorld, retry: Retry) -> None:
    """Of two steps side by side. What an action came to is kept for itself: the loss does not put it in doubt."""
    asked, answered = Counter[str](), asyncio.Event()

    async def handler(task: JsonObject, info: TaskInfo) -> Json:
        if info.name == "other":
            await answered.wait()
        asked[info.name] += 1
        return asked[info.name]

    async def ask(ctx: Context) -> Json:
        answer = await ctx.dispatch("llm", TOOL, retry=READ)
        answered.set()
        return answer

    async def body(ctx: Context, _input: JsonObject) -> Json:
        answer, _ = await ctx.parallel([ask, lambda branch: branch.dispatch("other", TOOL, retry=retry)])
        return await ctx.record("step", writing(f"answer {answer}", answer), compute=nothing)

    worker = await world.worker(bodies={"flow": body}, handlers={"tools": handler})
    lose(worker, "dispatch llm done")
    await worker.start()
    await world.settled(lambda: let_go(world))
    await world.pass_time(timedelta(seconds=2))

    assert await world.output() == 2
    assert await world.notes() == ["answer 2"]
    assert asked["other"] == (1 if retry is ONCE else 2)


async def test_a_run_does_not_park_beside_a_result_that_got_lost(world: EmbeddedWorld) -> None:
    """It asks again at once, and parks with the answer in its journal."""

    async def body(ctx: Context, _input: JsonObject) -> Json:
        return await ctx.parallel(
            [lambda branch: branch.wait_for_signal("go"), lambda branch: branch.dispatch("llm", TOOL, retry=READ)]
        )

    worker = await world.worker(bodies={"flow": body}, handlers={"tools": Tool()})
    lose(worker, "dispatch llm done")
    await worker.start()
    await world.settled(lambda: let_go(world))
    await world.pass_time(timedelta(seconds=2))
    await world.parked()

    assert [entry.state for entry in await world.history() if entry.name == "llm"] == ["done"]


@pytest.mark.parametrize("label", ["a", "engine:claim", "engine:end"])
async def test_a_busy_store_is_nobodys_failure(world: EmbeddedWorld, label: str) -> None:
    """Not journaled, not counted: the run is driven again a little later (C55, C56)."""
    worker = await world.worker(bodies={"flow": three_records})
    refuse(worker, label)
    await worker.start()
    for _ in range(20):
        await world.pass_time(timedelta(seconds=1))
        await world.flushed(worker)

    assert await world.output() == ["a", "b", "c"]
    assert await world.notes() == ["a", "b", "c"]
    assert (await world.run()).crashes == 0


async def test_a_store_that_is_busy_at_start_does_not_stop_recovery(world: EmbeddedWorld) -> None:
    """Twice refused, then asked again (C55)."""
    sender = await world.worker(bodies={"flow": three_records}, opened=False)
    await sender.start()
    worker = await world.worker(bodies={"flow": three_records}, opened=False)
    refuse(worker, "engine:due", times=2)
    refuse(worker, "engine:lost", times=2)
    refuse(worker, "engine:claim", times=2)
    await worker.engine.open(worker.observer)
    for _ in range(20):
        await world.pass_time(timedelta(seconds=1))
        await world.flushed(worker)

    assert await world.output() == ["a", "b", "c"]


async def test_a_signal_that_commits_together_with_the_park(world: EmbeddedWorld) -> None:
    """The run is still in memory when the signal wakes it: it is looked at again once it has left."""
    worker = await world.worker(bodies={"flow": one_wait})
    transact = worker.store.transact

    async def both(label: str, work: Callable[[Tx], object]) -> object:
        if label != "engine:park":
            return await transact(label, work)
        wake = transact("signal", lambda tx: worker.engine.signal(tx, "run", "go", "just now", dedup_key="1"))
        return (await asyncio.gather(transact(label, work), wake))[0]

    worker.store.transact = both  # type: ignore[assignment, method-assign]
    await worker.start()

    assert await world.output() == "just now"


async def test_duplicate_result_ignored(world: EmbeddedWorld) -> None:
    """The zombie's tool comes home after the successor's attempt: what is journaled stays."""
    late = Tool(held=asyncio.Event(), result=lambda _task, _info: "late")
    zombie = await world.worker(
        bodies={"flow": dispatching(READ)},
        handlers={"tools": late},
        limits=EngineLimits(lease=timedelta(days=1)),
    )
    await zombie.start()
    await late.started.wait()
    await world.expire("run")
    await world.worker(
        bodies={"flow": dispatching(READ)}, handlers={"tools": Tool(result=lambda _task, _info: "first")}
    )
    await world.pass_time(timedelta(seconds=10))
    assert await world.output() == {"value": "first"}
    assert late.held is not None
    late.held.set()
    await world.quiet(zombie)
    await world.flushed(zombie)

    assert late.finished == 1
    assert [entry.body for entry in await world.history()] == ["first"]


async def test_late_result_after_terminal_dropped(world: EmbeddedWorld) -> None:
    """The run was cancelled, its worker paused, and others settled it: the tool comes home to nobody."""
    late = Tool(held=asyncio.Event())
    zombie = await world.worker(
        bodies={"flow": dispatching(ONCE)},
        handlers={"tools": late},
        limits=EngineLimits(lease=timedelta(days=1)),
    )
    await zombie.start()
    await late.started.wait()
    await zombie.cancel()
    await world.expire("run")
    await world.worker(bodies={"flow": dispatching(ONCE)}, handlers={"tools": Tool()})
    await world.pass_time(timedelta(seconds=10))
    await world.until(EngineStatus.CANCELLED)
    assert late.held is not None
    late.held.set()
    await world.quiet(zombie)

    assert late.finished == 1
    assert [entry.state for entry in await world.history()] == ["started"]
    assert (await world.run()).status is EngineStatus.CANCELLED


class Bank:
    """The outside world: it does not forget when a process dies."""

    def __init__(self) -> None:
        self.refunds = 0

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        if info.name == "refund":
            self.refunds += 1
        return info.name


async def sign_off(ctx: Context, _input: JsonObject) -> Json:
    """A model call, a read beside an action that waits for a person, a child, and bookkeeping between them."""

    async def read(branch: Context) -> Json:
        value = await branch.dispatch("read", TOOL, retry=READ)
        return await branch.record("read:done", writing("read", value), compute=nothing)

    async def act(branch: Context) -> Json:
        await branch.record("card", writing("card"), compute=nothing)
        await branch.wait_for_signal("ok")
        try:
            value = await branch.dispatch("refund", TOOL, retry=ONCE)
        except InDoubt:
            value = "in doubt"
        return await branch.record("act:done", writing(f"act {value}", value), compute=nothing)

    await ctx.record("begin", writing("begin"), compute=nothing)
    await ctx.dispatch("llm", TOOL, retry=READ)
    done = await ctx.parallel([read, act])
    await ctx.child("sub", workflow="leaf", run_id="child", input_={})
    await ctx.record("end", writing("end"), compute=nothing)
    return list(done)


COMMITS_MAX = 30


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, COMMITS_MAX))
async def test_killed_at_every_commit(world: EmbeddedWorld, nth: int, after: bool) -> None:
    """Die at the nth commit, come back, and compare with the life that was not killed."""
    bank, console = Bank(), await world.worker(bodies={"flow": sign_off, "leaf": leaf}, opened=False)
    await console.start()
    worker = await world.worker(
        bodies={"flow": sign_off, "leaf": leaf}, handlers={"tools": bank}, dies=Dies(label="*", nth=nth, after=after)
    )
    if not await lives_to_the_end(world, worker, console):
        await world.died(worker)
        await world.past_lease()
        next_worker = await world.worker(bodies={"flow": sign_off, "leaf": leaf}, handlers={"tools": bank})
        assert await lives_to_the_end(world, next_worker, console)

    output = await world.output()
    assert output in (["read", "refund"], ["read", "in doubt"])
    assert bank.refunds == 1 or output == ["read", "in doubt"]
    assert Counter(await world.notes()) == Counter(
        ["begin", "card", "read", f"act {'refund' if output == ['read', 'refund'] else 'in doubt'}", "leaf", "end"]
    )


async def lives_to_the_end(world: EmbeddedWorld, worker: Worker, console: Worker) -> bool:
    """Let the worker drive the run, and approve when it waits; False if the worker died before the end."""
    assert isinstance(worker, EmbeddedWorker)
    while True:

        async def something_happened() -> bool:
            run = await world.run()
            return run.status.is_terminal or worker.faults.died.is_set() or run.waits == ("ok",)

        await world.settled(something_happened)
        if worker.faults.died.is_set():
            return False
        if (await world.run()).status.is_terminal:
            return True
        await console.signal("ok", True)
        for _ in range(5):
            await world.pass_time(timedelta(seconds=1))
            await asyncio.sleep(0)

        async def went_on() -> bool:
            return worker.faults.died.is_set() or (await world.run()).status.is_terminal

        world.clock.advance(timedelta(seconds=2))
        await world.settled(went_on)


UNDO_COMMITS_MAX = 12


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(1, UNDO_COMMITS_MAX))
async def test_undone_although_killed_at_every_commit(world: EmbeddedWorld, nth: int, after: bool) -> None:
    """Die at the nth commit of undoing a trip: no undo begins twice, none is left out unless it is in doubt."""
    agency, console = Agency(), await world.worker(bodies={"flow": trip}, opened=False)
    first = await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
    await first.start()
    await world.parked()
    await first.close()
    await console.cancel(compensate=True)
    worker = await world.worker(
        bodies={"flow": trip}, handlers={"tools": agency}, dies=Dies(label="*", nth=nth, after=after)
    )

    async def over() -> bool:
        return worker.faults.died.is_set() or (await world.run()).status.is_terminal

    await world.settled(over)
    if worker.faults.died.is_set():
        await world.died(worker)
        await world.past_lease()
        await world.worker(bodies={"flow": trip}, handlers={"tools": agency})
    await world.until(EngineStatus.CANCELLED)

    undone = {entry.name: entry.state for entry in await world.history() if entry.position < 0}
    begun = Counter(agency.names)
    assert list(undone) == ["cancel flight", "cancel hotel"]
    assert all(begun[name] == 1 or (begun[name] == 0 and state == "doubt") for name, state in undone.items())
    assert await world.notes() == ["ended run cancelled"]
