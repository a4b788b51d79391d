"""signoff, durable, on the embedded engine and SQLite with `synchronous=FULL`."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from unittest import mock

import harness

from signoff import Actor, Agent, DecisionRequest, SendRequest, Signoff, Verb, tool
from signoff.adapters.engine import embedded
from signoff.adapters.engine.embedded import EmbeddedEngine
from signoff.adapters.stores.sql import SqlStore
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Usage
from signoff.ports.engine import Context, EngineStatus, RunObserver
from signoff.ports.events import Event, EventName
from signoff.ports.model import (
    AssistantMessage,
    CallDelta,
    CallStarted,
    ModelEvent,
    Prompt,
    ReplyFinished,
    TextDelta,
    UserMessage,
)
from signoff.ports.store import Tx

WORKFLOW = "benchmark:records"
ME = Actor(id="benchmark")


class FakeModel:
    """Answers at once: first it looks something up, then it acts, then it has nothing more to ask."""

    name = "fake"

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`."""
        for delta in harness.DELTAS:
            yield TextDelta(text=delta)
        said = sum(isinstance(message, AssistantMessage) for message in prompt.messages)
        if said < 2:
            key = json.dumps({"key": _key_of(prompt)})
            yield CallStarted(index=0, provider_id=f"call_{said}", name=("lookup", "transfer")[said])
            yield CallDelta(index=0, arguments=key)
        yield ReplyFinished(usage=Usage(input_tokens=10, output_tokens=20), model="fake")


def _key_of(prompt: Prompt) -> str:
    first = prompt.messages[0]
    assert isinstance(first, UserMessage)
    return first.text.partition("key=")[2]


class Commits:
    """Counts commits (`SqlStore(faults=...)`)."""

    count = 0

    def before_commit(self, labels: Sequence[str]) -> None:
        """Nothing."""

    def after_commit(self, labels: Sequence[str]) -> None:  # noqa: ARG002
        """Count."""
        self.count += 1


class Signalled(dict[str, "asyncio.Future[None]"]):
    """Something that happens once to each run, and whoever waits for it."""

    def tell(self, run_id: str) -> None:
        """It happened."""
        future = self.setdefault(run_id, asyncio.get_running_loop().create_future())
        if not future.done():
            future.set_result(None)

    async def wait(self, run_id: str) -> None:
        """Return once it has happened."""
        await self.setdefault(run_id, asyncio.get_running_loop().create_future())
        del self[run_id]


class ToldEngine(EmbeddedEngine):
    """Tells in process, after the commit, that a run has parked: nobody has to keep asking the database."""

    parked: Signalled

    async def open(self, observer: RunObserver, *, drive: bool = True) -> None:
        """As usual, with an observer between the engine and its own."""
        await super().open(_Observer(observer, self.parked), drive=drive)


class _Observer:
    def __init__(self, inner: RunObserver, told: Signalled) -> None:
        self._inner = inner
        self._told = told

    def ended(self, tx: Tx, run_id: str, status: EngineStatus, error: BaseException | None, error_text: str) -> None:
        self._inner.ended(tx, run_id, status, error, error_text)

    def parked(self, tx: Tx, run_id: str, parked: bool) -> None:
        self._inner.parked(tx, run_id, parked)
        if parked:
            tx.on_commit(lambda: self._told.tell(run_id))


class Ours:
    """`harness.Contender`. Which run has which key is kept beside the database, for the restart."""

    def __init__(self, database: Path) -> None:
        self.acted: dict[str, float] = {}
        self._commits = Commits()
        self._runs_file = database.with_name(database.name + ".runs")
        self._runs: dict[str, str] = {}
        self._cards: dict[str, str] = {}
        self._ended = Signalled()
        self._parked = Signalled()
        self._recorded = Signalled()

        @tool
        async def lookup(key: str) -> dict[str, object]:
            """Read."""
            return harness.read(key)

        @tool(kind="action")
        async def transfer(key: str) -> dict[str, object]:
            """Act."""
            self.acted[key] = time.perf_counter()
            return {"done": key}

        with mock.patch.object(embedded, "EmbeddedEngine", ToldEngine):
            self._app = Signoff(
                agents=[Agent("desk", instructions="Do it.", tools=[lookup, transfer])],
                model=FakeModel(),
                database=SqlStore(f"sqlite:///{database}", faults=self._commits),
                durable="strict",
                subscribers=[self._hear],
            )
        assert isinstance(self._app.engine, ToldEngine)
        self._engine = self._app.engine
        self._engine.parked = self._parked
        self._engine.register(WORKFLOW, self._record)

    async def open(self) -> None:
        """See `harness.Contender`."""
        await self._app.open()
        if self._runs_file.exists():
            self._runs = json.loads(self._runs_file.read_text())

    async def start(self, key: str) -> None:
        """See `harness.Contender`."""
        run = await self._app.send(ME, SendRequest(message=f"Do it, key={key}"))
        self._runs[key] = run.run_id
        await self._parked.wait(run.run_id)
        if key == harness.PARKED_KEY:
            self._runs_file.write_text(json.dumps({key: run.run_id}))

    async def approve(self, key: str) -> None:
        """See `harness.Contender`."""
        run_id = self._runs.pop(key)
        card = self._cards.pop(run_id, None)
        if card is None:  # another process parked it
            card = await self._app.store.read(lambda tx: next(c.id for c in tx.calls_of_run(run_id) if c.is_open))
        await self._app.decide(ME, DecisionRequest(call_id=card, verb=Verb.APPROVE))
        await self._ended.wait(run_id)

    async def records(self, name: str, count: int) -> None:
        """See `harness.Contender`."""

        def start(tx: Tx) -> None:
            self._engine.start(tx, run_id=name, workflow=WORKFLOW, input_={"count": count})

        await self._app.store.transact("benchmark", start)
        await self._recorded.wait(name)

    def commits(self) -> int:
        """See `harness.Contender`."""
        return self._commits.count

    async def _record(self, ctx: Context, input_: JsonObject) -> Json:
        async def compute() -> None:
            return None

        for number in range(int(str(input_["count"]))):
            await ctx.record("tiny", lambda tx, _, number=number: number, compute=compute)  # type: ignore[misc]  # noqa: ARG005
        self._recorded.tell(ctx.run_id)
        return None

    def _hear(self, event: Event) -> None:
        assert event.name is not EventName.RUN_FAILED, event
        if event.name is EventName.APPROVAL_REQUESTED:
            self._cards[str(event.run_id)] = str(event.data["call_id"])
        elif event.name is EventName.RUN_FINISHED:
            self._ended.tell(str(event.run_id))


if __name__ == "__main__":
    harness.main(Ours)
