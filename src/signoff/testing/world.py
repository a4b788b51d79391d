"""A whole application in a test: it is spoken to like by people, killed and started again like a process.

    world = World(sql_stores(url), durable=True, agents=[desk], script=[ask_for("refund", {...}), "Done."])
    await world.start()
    run = await world.send("Refund A1")
    card = await world.card(run)
    await world.restart()
    await world.approve(card)
    assert (await world.ended(run)).status is RunStatus.COMPLETED
    await world.close()

What tools really did belongs to the test (`testing.outside`): it survives every restart. No helper sleeps or polls:
they wait for commits, and fail after `PATIENCE_S` seconds of real time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict, TypeVar, Unpack

from signoff.agents.agent import Agent
from signoff.app import Signoff
from signoff.approvals.links import DecisionLinks
from signoff.domain.actor import Actor
from signoff.domain.audit import AuditEntry
from signoff.domain.call import FINAL, Call, CallStatus
from signoff.domain.frame import NumberedFrame
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Run, RunStatus
from signoff.http.identity import HeaderActorResolver
from signoff.ports.engine import EngineLimits, JournalEntry
from signoff.ports.events import Event
from signoff.ports.ids import Ids
from signoff.ports.model import Prompt
from signoff.ports.notifier import Notifier
from signoff.ports.policy import ApprovalPolicy
from signoff.ports.quota import Quota
from signoff.ports.store import CardPage, Tx
from signoff.service.decide import Decided, DecisionRequest, Verb
from signoff.service.deps import Limits
from signoff.service.read import my_cards
from signoff.service.send import SendRequest, Started
from signoff.service.threads import ThreadView, get_thread
from signoff.testing.clock import FakeClock, FakeIds
from signoff.testing.scripted import Answer, ScriptedModel
from signoff.testing.stores import MortalStore, StoreFactory, WorldStore
from signoff.testing.strict import StrictModel
from signoff.tools.gate import Authorizer
from signoff.turn.deps import TurnSettings

T = TypeVar("T")

PATIENCE_S = 20.0

ANA = Actor(id="ana")

Script: TypeAlias = Sequence[Answer] | Mapping[str, Sequence[Answer]] | Callable[[Prompt], Answer]
"""What the model says: the replies to any message, to each message by its text, or to a prompt."""


class ProcessDied(Exception):
    """The process died while the test waited for it. Start another one and go on."""


class Options(TypedDict, total=False):
    """What each process of a world is built with; see `Signoff`."""

    agents: Sequence[Agent]
    policy: ApprovalPolicy
    quota: Quota
    authorizer: Authorizer
    default_role: str
    inbox_role: str
    notifiers: Sequence[Notifier]
    links: DecisionLinks
    settings: TurnSettings
    limits: Limits
    engine: Literal["embedded", "dbos"]
    engine_limits: EngineLimits
    serve: bool


class World:
    """One application's life, over as many processes as the test likes. Use it from one event loop.

    `app` is the newest process (its router takes the actor from headers), `events` what all of them told their
    subscribers, `prompts` what the model was shown.
    """

    def __init__(
        self,
        stores: StoreFactory,
        *,
        durable: bool | Literal["strict"],
        script: Script = ("Done.",),
        ids: Ids | None = None,
        **options: Unpack[Options],
    ) -> None:
        """
        Args:
            stores: makes the store of each process (`testing.stores`).
            durable: see `Signoff`.
            script: what the model says, whatever process asks it.
            ids: shared by all processes.
            options: of the first process; the next ones take them over unless told otherwise.
        """
        self.clock = FakeClock()
        self.events: list[Event] = []
        self._stores = stores
        self._durable = durable
        self._ids = ids or FakeIds()
        self._options = options
        self._scripted = _scripted(script, self.clock)
        self._model = StrictModel(self._scripted)
        self._processes: list[tuple[Signoff, WorldStore]] = []
        self._woken: set[asyncio.Event] = set()
        self._latest: Started | None = None

    # --- processes ------------------------------------------------------------------------------------------

    @property
    def app(self) -> Signoff:
        """The newest process."""
        return self._processes[-1][0]

    @property
    def prompts(self) -> list[Prompt]:
        """All prompts the model was given, oldest first."""
        return self._scripted.prompts

    async def start(self, **changes: Unpack[Options]) -> Signoff:
        """Start a process on the world's rows, beside those that run; `changes` hold from now on."""
        self._options = {**self._options, **changes}
        store = self._stores(self._changed)
        app = Signoff(
            database=store,
            durable=self._durable,
            actor=HeaderActorResolver(),
            model=self._model,
            clock=self.clock,
            ids=self._ids,
            subscribers=[self.events.append],
            **self._options,
        )
        await self._patiently(app.open(), store)
        self._processes.append((app, store))
        return app

    def kill(self) -> None:
        """End the newest process where it is, without a word. A tool that kills its own process then waits forever."""
        store = self._processes[-1][1]
        if not isinstance(store, MortalStore):
            raise TypeError("a store in memory dies with its process, and its rows with it")
        store.kill()

    async def restart(self, *, after: timedelta = timedelta(), **changes: Unpack[Options]) -> Signoff:
        """Kill the newest process and start another one, `after` a while: leases have ended after 15 seconds."""
        self.kill()
        self.clock.advance(after)
        return await self.start(**changes)

    async def redeploy(self, **changes: Unpack[Options]) -> Signoff:
        """Close the newest process as one should, and start another one."""
        app, store = self._processes.pop()
        await self._patiently(app.close(), store)
        return await self.start(**changes)

    async def close(self) -> None:
        """Close what still runs. Raises `AssertionError` if the model was ever given a prompt no provider takes."""
        for app, store in self._processes:
            if not _is_dead(store):
                await self._patiently(app.close(), store)
            else:
                await store.close()
        assert self._model.refusals == []

    # --- people ---------------------------------------------------------------------------------------------

    async def send(
        self,
        message: str = "Go on.",
        *,
        by: Actor = ANA,
        thread: str | None = None,
        agent: str | None = None,
        key: str | None = None,
        to: Signoff | None = None,
    ) -> Started:
        """Say something, in a new conversation or in `thread`; `to` names the process (default: the newest)."""
        request = SendRequest(message=message, thread_id=thread, agent=agent, idempotency_key=key)
        self._latest = await self._do((to or self.app).send(by, request))
        return self._latest

    async def approve(
        self,
        card: Call,
        *,
        by: Actor | None = None,
        remember: bool = False,
        arguments: JsonObject | None = None,
        digest: str | None = None,
        to: Signoff | None = None,
    ) -> Decided:
        """Say yes to a card; by whom it was made for, unless told otherwise."""
        return await self.decide(
            card, Verb.APPROVE, by=by, remember=remember, arguments=arguments, digest=digest, to=to
        )

    async def reject(self, card: Call, reason: str | None = None, *, by: Actor | None = None) -> Decided:
        """Say no to a card."""
        return await self.decide(card, Verb.REJECT, by=by, reason=reason)

    async def answer(self, card: Call, answers: dict[str, list[str]], *, by: Actor | None = None) -> Decided:
        """Answer a card's questions."""
        return await self.decide(card, Verb.ANSWER, by=by, answers=answers)

    async def skip(self, card: Call, *, by: Actor | None = None) -> Decided:
        """Let a card's questions take their defaults."""
        return await self.decide(card, Verb.SKIP, by=by)

    async def settle(self, card: Call, output: JsonObject, *, by: Actor | None = None) -> Decided:
        """Say that an action in doubt has happened, and what came of it."""
        return await self.decide(card, Verb.SETTLE, by=by, output=output)

    async def decide(
        self,
        card: Call,
        verb: Verb,
        *,
        by: Actor | None = None,
        reason: str | None = None,
        remember: bool = False,
        arguments: JsonObject | None = None,
        digest: str | None = None,
        answers: dict[str, list[str]] | None = None,
        output: JsonObject | None = None,
        to: Signoff | None = None,
    ) -> Decided:
        """Any answer to a card, through any process."""
        request = DecisionRequest(
            call_id=card.id,
            verb=verb,
            reason=reason,
            remember=remember,
            arguments=arguments,
            # Whoever looks at an action in doubt says which one they looked at.
            digest=card.shown_digest if digest is None and card.in_doubt is not None else digest,
            answers=answers,
            output=output,
        )
        return await self._do((to or self.app).decide(by or requester(card), request))

    async def cancel(self, run: Started | str, *, by: Actor = ANA) -> None:
        """Stop a run."""
        await self._do(self.app.cancel(by, _id(run)))

    # --- what they see --------------------------------------------------------------------------------------

    async def card(self, run: Started | str | None = None) -> Call:
        """The run's oldest open card, sub-agents' cards included; waits for one. Default: the run sent last."""
        return (await self.cards(1, run))[0]

    async def cards(self, count: int, run: Started | str | None = None) -> list[Call]:
        """The run's open cards in the order of their calls, once there are `count`."""
        run_id = self._run_id(run)

        def look(tx: Tx) -> list[Call] | None:
            family = _family(tx, run_id)
            found = [call for each in family for call in tx.calls_of_run(each.id) if call.is_open]
            if len(found) >= count:
                return found
            head = family[0]
            assert not head.status.is_terminal, f"{run_id} has ended ({head.status}: {head.error}) without its cards"
            return None

        return await self.until(look, f"{count} cards of {run_id}")

    async def ended(self, run: Started | str | None = None) -> Run:
        """The run, once it has ended in one way or another."""
        run_id = self._run_id(run)

        def look(tx: Tx) -> Run | None:
            row = tx.run(run_id)
            assert row is not None, f"there is no run {run_id}"
            return row if row.status.is_terminal else None

        return await self.until(look, f"the end of {run_id}")

    async def completed(self, run: Started | str | None = None) -> Run:
        """The run, which must end well."""
        row = await self.ended(run)
        assert row.status is RunStatus.COMPLETED, f"{row.id} is {row.status}: {row.error}"
        return row

    async def parked(self, run: Started | str | None = None) -> Run:
        """The run, once it waits for nothing but people."""
        run_id = self._run_id(run)

        def look(tx: Tx) -> Run | None:
            row = tx.run(run_id)
            assert row is not None, f"there is no run {run_id}"
            assert not row.status.is_terminal, f"{run_id} has ended ({row.status}: {row.error})"
            return row if row.parked else None

        return await self.until(look, f"{run_id} to park")

    async def settled(self, card: Call) -> Call:
        """The call, once it has its outcome."""

        def look(tx: Tx) -> Call | None:
            call = tx.call(card.id)
            return call if call is not None and call.status in FINAL and call.ended_at is not None else None

        return await self.until(look, f"the outcome of {card.id}")

    async def call(self, card: Call) -> Call:
        """The call as it stands."""
        found = await self.read(lambda tx: tx.call(card.id))
        assert found is not None
        return found

    async def calls(self, run: Started | str | None = None) -> list[Call]:
        """The run's own calls, in order."""
        run_id = self._run_id(run)
        return await self.read(lambda tx: tx.calls_of_run(run_id))

    async def statuses(self, run: Started | str | None = None) -> list[CallStatus]:
        """How the run's own calls stand, in order."""
        return [call.status for call in await self.calls(run)]

    async def run(self, run: Started | str | None = None) -> Run:
        """The run as it stands."""
        run_id = self._run_id(run)
        found = await self.read(lambda tx: tx.run(run_id))
        assert found is not None
        return found

    async def thread(self, run: Started | str, *, by: Actor = ANA) -> ThreadView:
        """The conversation as its owner sees it."""
        thread_id = run.thread_id if isinstance(run, Started) else run
        return await self._do(get_thread(self.app.deps, by, thread_id))

    async def inbox(self, by: Actor = ANA, *, limit: int = 100, cursor: str | None = None) -> CardPage:
        """The person's open cards."""
        return await self._do(my_cards(self.app.deps, by, limit=limit, cursor=cursor))

    async def frames(self, run: Started | str | None = None) -> list[NumberedFrame]:
        """What the run's stream holds by now."""
        run_id = self._run_id(run)
        return await self.read(lambda tx: tx.frames(run_id, after=0, limit=100_000))

    async def watch(self, run: Started | str | None = None, *, after: int = 0, by: Actor = ANA) -> list[NumberedFrame]:
        """Read the run's stream to its end, as a client does, from behind frame `after`; ended runs too."""
        attached = await self._do(self.app.attach(by, self._run_id(run), after=after, even_ended=True))
        return await self._do(_drained(attached.frames), "the end of the stream")

    async def audit(self, card: Call | None = None, *, tenant: str = "") -> list[AuditEntry]:
        """The audit rows, of one card or of all."""
        call_id = None if card is None else card.id
        return await self.read(lambda tx: tx.audit(tenant=tenant, call_id=call_id))

    async def journal(self, run: Started | str | None = None) -> list[JournalEntry]:
        """The run's journal; durable worlds only."""
        engine, run_id = self.app.engine, self._run_id(run)
        assert engine is not None, "only durable runs have a journal"
        return await self.read(lambda tx: engine.history(tx, run_id))

    async def streamed(self, kind: str, run: Started | str | None = None) -> NumberedFrame:
        """The first frame of this kind on the run's stream, once it is there."""
        run_id = self._run_id(run)

        def look(tx: Tx) -> NumberedFrame | None:
            frames = tx.frames(run_id, after=0, limit=100_000)
            return next((frame for frame in frames if frame.frame["kind"] == kind), None)

        return await self.until(look, f"a frame {kind!r} of {run_id}")

    async def journaled(self, prefix: str, count: int, run: Started | str | None = None) -> None:
        """Return once that many finished entries of the run's journal have names with this prefix."""
        engine, run_id = self.app.engine, self._run_id(run)
        assert engine is not None, "only durable runs have a journal"

        def look(tx: Tx) -> bool | None:
            found = [entry for entry in engine.history(tx, run_id) if entry.name.startswith(prefix)]
            return len([entry for entry in found if entry.state == "done"]) >= count or None

        await self.until(look, f"{count} entries {prefix!r} of {run_id}")

    # --- waiting --------------------------------------------------------------------------------------------

    async def read(self, look: Callable[[Tx], T]) -> T:
        """Look at the rows, through the newest process."""
        return await self._do(self.app.store.read(look))

    async def until(self, look: Callable[[Tx], T | None], what: str) -> T:
        """What `look` finds in the rows, once it finds something; looks again after each commit of any process.

        Raises:
            TimeoutError: nothing in `PATIENCE_S` seconds; names `what`.
            ProcessDied: the newest process died meanwhile.
        """
        woken = asyncio.Event()
        self._woken.add(woken)
        try:
            return await self._do(self._until(look, woken), f"waiting for {what}")
        finally:
            self._woken.discard(woken)

    async def _until(self, look: Callable[[Tx], T | None], woken: asyncio.Event) -> T:
        while True:
            woken.clear()
            found = await self.app.store.read(look)
            if found is not None:
                return found
            await woken.wait()

    def _changed(self) -> None:
        for woken in self._woken:
            woken.set()

    async def _do(self, work: Coroutine[object, object, T], what: str = "working") -> T:
        return await self._patiently(work, self._processes[-1][1], what)

    async def _patiently(self, work: Coroutine[object, object, T], store: WorldStore, what: str = "working") -> T:
        """Do it, within reason, and notice when the process dies meanwhile: its own calls would never return."""
        task = asyncio.ensure_future(work)
        waiting: set[asyncio.Task[object]] = {task}
        if isinstance(store, MortalStore):
            waiting.add(asyncio.ensure_future(store.died.wait()))
        try:
            done, _ = await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise TimeoutError(f"{what}: nothing for {PATIENCE_S:g} s")
            if not task.done() or task.cancelled():
                raise ProcessDied(what)
            return task.result()
        finally:
            await _cancel(waiting)

    def _run_id(self, run: Started | str | None) -> str:
        if run is not None:
            return _id(run)
        assert self._latest is not None, "nothing was sent yet"
        return self._latest.run_id


async def _drained(frames: AsyncIterator[NumberedFrame]) -> list[NumberedFrame]:
    return [frame async for frame in frames]


def requester(card: Call) -> Actor:
    """Whom the call was made for, without any role."""
    return Actor(id=card.actor_id, tenant=card.tenant)


def _id(run: Started | str) -> str:
    return run.run_id if isinstance(run, Started) else run


def _is_dead(store: WorldStore) -> bool:
    return isinstance(store, MortalStore) and store.died.is_set()


def _scripted(script: Script, clock: FakeClock) -> ScriptedModel:
    if isinstance(script, Mapping):
        return ScriptedModel.by_message(script, clock=clock)
    if isinstance(script, Sequence):
        return ScriptedModel(script, clock=clock)
    return ScriptedModel.from_function(script, clock=clock)


def _family(tx: Tx, run_id: str) -> list[Run]:
    """The run and those below it that it waits for, itself first."""
    run = tx.run(run_id)
    assert run is not None, f"there is no run {run_id}"
    found = [run]
    for child in tx.children_of(run_id):
        if not child.detached:
            found += _family(tx, child.id)
    return found


async def _cancel(tasks: Iterable["asyncio.Task[object]"]) -> None:
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending)
