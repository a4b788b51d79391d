"""An application whose workers say where they are, and stay there as long as a test wants them to.

signoff worker tests.processes.stage_app:app
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path

from signoff import Agent, Signoff, ToolContext, tool
from signoff.adapters.engine.dbos import LIMITS
from signoff.adapters.sinks.redis import RedisSink
from signoff.adapters.stores.sql import SqlStore
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.actor import Actor
from signoff.domain.approval import Requirement
from signoff.domain.call import Call
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.thread import Thread
from signoff.ports.engine import Context, EngineLimits
from signoff.ports.events import Subscriber
from signoff.ports.model import ModelEvent, Prompt, TextDelta
from signoff.ports.policy import ToolView
from signoff.testing.scripted import Answer, ScriptedModel, ask_for, asked, boom, say, step, turn
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.loop import run_turn
from tests.simulation.older_shape import before_patches

DATABASE = "SIGNOFF_TEST_STAGE_DATABASE"
FOLDER = "SIGNOFF_TEST_STAGE_FOLDER"
REDIS = "SIGNOFF_TEST_STAGE_REDIS"
#: Which deploy this process is of; see `deploy`.
DEPLOY = "SIGNOFF_TEST_STAGE_DEPLOY"
#: Set: the engine's own limits instead of short ones.
PATIENT = "SIGNOFF_TEST_STAGE_PATIENT"

FIRST_WORDS = "Let me look. "
LAST_WORDS = "It is done."
TALK = "One, two, three."

#: Set: the store gives up soon.
HASTY = "SIGNOFF_TEST_STAGE_HASTY"
IMPATIENCE = timedelta(seconds=0.5)

#: So that a test waits 4 s for a take-over, not 8.
SHORT = EngineLimits(lease=timedelta(seconds=3), sweep=timedelta(seconds=1))

#: A body that only the deploy "next" has.
NEXT = "agent.run@next"

#: Another process' files can only be polled.
LOOK_S = 0.02
#: Real time after which a test gives up that waits for something. Nothing takes this long when it is right.
PATIENCE_S = 60.0


class Stage:
    """A folder that the test and its processes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def shut(self, place: str) -> None:
        """Whoever reaches `place` stays there from now on."""
        (self.folder / f"{place}.shut").touch()

    def open(self, place: str) -> None:
        """Let them go on."""
        (self.folder / f"{place}.shut").unlink()

    def let_through(self, place: str, process: int) -> None:
        """Let one of them go on."""
        (self.folder / f"{place}.{process}").touch()

    def is_shut(self, place: str) -> bool:
        """Whether this process stays at `place`."""
        return (self.folder / f"{place}.shut").exists() and not (self.folder / f"{place}.{os.getpid()}").exists()

    async def reach(self, place: str) -> None:
        """This process is at `place`."""
        self._say(f"at {place}")
        while self.is_shut(place):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def reached(self, place: str, *, times: int = 1) -> list[int]:
        """Wait until `place` was reached so often; the process of each time."""
        return await self._said(f"at {place}", times=times)

    def at(self, place: str) -> list[int]:
        """The process of each time that `place` was reached."""
        return self._processes(f"at {place}")

    def did(self, effect: str) -> None:
        """Something happened in the outside world."""
        self._say(f"did {effect}")

    def did_once(self, effect: str, key: str) -> None:
        """As a provider that honours keys: the second time nothing happens."""
        try:
            (self.folder / f"{key.replace(':', '-')}.key").touch(exist_ok=False)
        except FileExistsError:
            self._say(f"not again {effect}")
        else:
            self.did(effect)

    async def refused(self, effect: str) -> list[int]:
        """Wait until somebody would have done it again; the process of each time."""
        return await self._said(f"not again {effect}", times=1)

    async def done(self, effect: str) -> list[int]:
        """Wait until it happened; the process of each time."""
        return await self._said(f"did {effect}", times=1)

    def effects(self, effect: str) -> list[int]:
        """The process of each time that it happened."""
        return self._processes(f"did {effect}")

    async def _said(self, what: str, *, times: int) -> list[int]:
        async with asyncio.timeout(PATIENCE_S):
            while len(found := self._processes(what)) < times:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        return found

    def _say(self, what: str) -> None:
        with (self.folder / "said").open("a") as said:
            said.write(f"{what}: {os.getpid()}\n")

    def _processes(self, what: str) -> list[int]:
        said = self.folder / "said"
        lines = said.read_text().splitlines() if said.exists() else []
        return [int(line.rpartition(": ")[2]) for line in lines if line.rpartition(": ")[0] == what]


def script(stage: Stage, prompt: Prompt) -> Answer:
    """Whoever says "talk X" is talked to, and "pay X" asks for that tool. While "provider" is shut the model fails."""
    what, _, order = asked(prompt).partition(" ")
    if stage.is_shut("provider"):
        return boom("the provider says no")
    match what, step(prompt):
        case "talk", _:
            return say(TALK)
        case _, 0:
            return turn(say(FIRST_WORDS, deltas=["Let me ", "look. "]), ask_for(what, {"order": order}))
        case _:
            return say(LAST_WORDS)


class StageModel:
    """Reaches ``model-<order>-<step>`` after its first words."""

    name = "stage"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._scripted = ScriptedModel.from_function(partial(script, stage))

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`."""
        _, _, order = asked(prompt).partition(" ")
        spoken = False
        async for event in self._scripted.reply(prompt):
            yield event
            if isinstance(event, TextDelta) and not spoken:
                spoken = True
                await self._stage.reach(f"model-{order}-{step(prompt)}")


class StagePolicy(DefaultPolicy):
    """Reaches ``policy-<order>``, in the process that drives the run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def requirement_for(  # type: ignore[override]  # the port lets a policy be asynchronous
        self, call: Call, tool: ToolView, actor: Actor, thread: Thread
    ) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        assert isinstance(call.arguments, dict)
        await self._stage.reach(f"policy-{call.arguments['order']}")
        return super().requirement_for(call, tool, actor, thread)


def agent(stage: Stage, instructions: str) -> Agent:
    """Its tools reach ``<tool>-<order>`` before their effect."""

    @tool(kind="action", idempotent=True)
    async def pay(order: str, ctx: ToolContext) -> str:
        """Pay back under a key."""
        await stage.reach(f"pay-{order}")
        stage.did_once(f"pay {order}", ctx.idempotency_key)
        return f"{order} paid back"

    @tool(kind="action")
    async def transfer(order: str) -> str:
        """Transfer, without a key."""
        await stage.reach(f"transfer-{order}")
        stage.did(f"transfer {order}")
        return f"{order} transferred"

    return Agent("desk", instructions=instructions, tools=[pay, transfer])


def desk(
    database: str,
    stage: Stage,
    environment: Mapping[str, str] | None = None,
    *,
    subscribers: Iterable[Subscriber] = (),
) -> Signoff:
    """A desk that drives nothing by itself; `environment` is a worker's."""
    environment = environment or {}
    redis = environment.get(REDIS)
    deployed = environment.get(DEPLOY, "")
    app = Signoff(
        agents=[agent(stage, "Help kindly." if deployed == "kind" else "Help.")],
        model=StageModel(stage),
        database=SqlStore(database, patience=IMPATIENCE) if HASTY in environment else database,
        engine="dbos",
        serve=False,
        durable="strict",
        policy=StagePolicy(stage),
        engine_limits=LIMITS if PATIENT in environment else SHORT,
        sink=RedisSink(redis) if redis else "database",
        subscribers=subscribers,
    )
    deploy(app, deployed)
    return app


def deploy(app: Signoff, name: str) -> None:
    """Make it the deploy `name`: "" is today's, "kind" has other instructions.

    "older" has the turn as it was before its shape changed, "broken" asks for one checkpoint more than today's, "next"
    has another workflow beside it.
    """
    assert app.engine is not None
    turn_deps = app.deps.turn
    match name:
        case "older":
            app.engine.register("agent.run", partial(before_patches, turn_deps))
        case "broken":
            app.engine.register("agent.run", partial(_broken, turn_deps))
        case "next":
            app.engine.register(NEXT, _next)


async def _broken(deps: TurnDeps, ctx: Context, input_: JsonObject) -> Json:
    await ctx.record("persist:greeting", lambda _tx, value: value, compute=_nothing)
    return await run_turn(ctx, deps, TurnInput.from_json(input_))


async def _next(ctx: Context, _input: JsonObject) -> Json:
    return await ctx.record("persist:next", lambda _tx, value: value, compute=_nothing)


async def _nothing() -> None:
    return None


def __getattr__(name: str) -> Signoff:
    """`app`, as the environment says; made by each process that asks for it."""
    if name != "app":
        raise AttributeError(name)
    logging.basicConfig(level=logging.INFO)
    return desk(os.environ[DATABASE], Stage(Path(os.environ[FOLDER])), os.environ)
