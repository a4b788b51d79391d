"""Plays a scenario, with the process ending where it is told to, until everything that was begun has ended."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from signoff import Tool
from signoff.adapters.stores.sql import SqlStore
from signoff.domain.call import Call, CallStatus
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.errors import StoreBusy
from signoff.ports.engine import Context
from signoff.ports.store import Tx
from signoff.testing.places import Place, Places
from signoff.testing.stepped import Refusals, SteppedStore, idle, stepped
from signoff.testing.stores import Changed
from signoff.testing.world import ProcessDied, World
from signoff.turn.delegate import WORKFLOW
from signoff.turn.deps import TurnDeps
from tests.simulation.scenario import ANA, Scenario
from tests.simulation.seen import Seen, look
from tests.simulation.town import Town

#: Leases have ended by then.
AFTER = timedelta(seconds=20)
#: More than any scenario takes: a run that is stuck shows here.
MOMENTS_MAX = 400


TurnBody: TypeAlias = Callable[[TurnDeps, Context, JsonObject], Awaitable[Json]]
"""What a process runs as a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A play that has come to its end: the places it came by, and what there is to see afterwards.

    `commits` is how many the database counted. `tools` are all agents' tools by name.
    """

    places: Sequence[Place]
    commits: int
    seen: Seen
    tools: Mapping[str, Tool]


def play(
    scenario: Scenario,
    *,
    deaths: frozenset[int] = frozenset(),
    eager: bool = False,
    refusals: Refusals | None = None,
    patience: timedelta = timedelta(),
    first_body: TurnBody | None = None,
) -> Played:
    """Play `scenario` on a fresh database; the process ends at the places in `deaths` and is started again.

    `first_body` is what the first process runs as a turn; the others run today's code.
    """
    with tempfile.TemporaryDirectory() as home, stepped() as run:
        file = Path(home) / "desk.db"
        file.write_bytes(empty_database())
        stage = Stage(
            scenario,
            f"sqlite:///{file}",
            deaths=deaths,
            eager=eager,
            refusals=refusals,
            patience=patience,
            first_body=first_body,
        )
        return run(stage.play())


@cache
def undisturbed(scenario: Scenario, *, eager: bool = False) -> Played:
    """The play in which nothing dies and nothing fails."""
    return play(scenario, eager=eager)


@cache
def empty_database() -> bytes:
    """A database file with the schema and nothing in it."""

    async def make(file: Path) -> None:
        store = SqlStore(f"sqlite:///{file}")
        await store.open()
        await store.close()

    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "empty.db"
        asyncio.run(make(file))
        return file.read_bytes()


class Stage:
    """One play. See `scenario.Scene`."""

    def __init__(
        self,
        scenario: Scenario,
        url: str,
        *,
        deaths: frozenset[int] = frozenset(),
        eager: bool = False,
        refusals: Refusals | None = None,
        patience: timedelta = timedelta(),
        first_body: TurnBody | None = None,
    ) -> None:
        self.scenario = scenario
        self._first_body = first_body
        self.places = Places(deaths, self._die)
        self.town = Town(scenario.says, mark=self.places.mark)
        self.stores: list[SteppedStore] = []
        self._thread_id: str | None = None

        def make(changed: Changed) -> SteppedStore:
            store = SteppedStore(
                url, changed=changed, faults=self.places, eager=eager, refusals=refusals, patience=patience
            )
            self.stores.append(store)
            return store

        self.agents = scenario.agents(self.town)
        self.world = World(make, durable="strict", agents=self.agents)

    async def play(self) -> Played:
        """Play it to the end."""
        self._player = asyncio.current_task()
        await self._survive(self._start)
        for number, message in enumerate(self.scenario.messages):
            await self._survive(partial(self._say, number, message))
            await self._survive(self._go_on)
        places = list(self.places.passed)
        commits = sum(store.commits for store in self.stores)
        assert self.town.strict.refusals == []
        seen = await look(self.world, self.town)
        tools = {tool.name: tool for agent in self.agents for tool in agent.toolset}
        await self._close()
        return Played(places=places, commits=commits, seen=seen, tools=tools)

    # --- a process ------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        app = await self.world.start()
        if self._first_body is not None and len(self.stores) == 1:
            assert app.engine is not None
            app.engine.register(WORKFLOW, partial(self._first_body, app.deps.turn))

    async def _close(self) -> None:
        await self.world.close()

    def _die(self) -> None:
        """The process ends here. None of its tasks runs any further, and nothing of it reaches the database."""
        self.world.kill()
        for task in asyncio.all_tasks():
            if task is not self._player:
                task.cancel()

    async def _survive(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do it; if the process ends meanwhile, start another one and do it again."""
        while True:
            try:
                await step()
            except ProcessDied:
                pass
            else:
                return
            self.world.clock.advance(AFTER)
            if step != self._start:
                await self._survive(self._start)

    # --- people ---------------------------------------------------------------------------------------------

    async def _say(self, number: int, message: str) -> None:
        while True:
            try:
                started = await self.world.send(message, by=ANA, thread=self._thread_id, key=f"message-{number}")
            except StoreBusy:
                self.world.clock.advance(timedelta(seconds=1))
            else:
                self._thread_id = started.thread_id
                return

    async def _go_on(self) -> None:
        """Let everything come to its end: people act when nothing moves any more, and time passes when nobody acts."""
        for _ in range(MOMENTS_MAX):
            await idle()
            if self.stores[-1].died.is_set():
                raise ProcessDied("while nobody looked")
            if await self._is_over():
                return
            if await self._somebody_acts():
                continue
            next_at = self.world.clock.next_at
            assert next_at is not None, "nothing will ever happen again"
            self.world.clock.advance(next_at - self.world.clock.now())
        raise AssertionError(f"the run is stuck: {[str(place) for place in self.places.passed[-5:]]}")

    async def _is_over(self) -> bool:
        engine = self.world.app.engine
        assert engine is not None
        return await self.world.read(lambda tx: all(run.status.is_terminal for run in engine.runs(tx, limit=1000)))

    async def _somebody_acts(self) -> bool:
        acted = False
        for card in sorted(await self.world.read(open_cards), key=self.scenario.order):
            try:
                acted = await self._act(card)
            except StoreBusy:
                return False
            if acted and not self.scenario.together:
                return True
        return acted

    async def _act(self, card: Call) -> bool:
        if card.status is CallStatus.IN_DOUBT:
            await self.scenario.settled_by(self, card)
            return True
        return await self.scenario.people(self, card)


def open_cards(tx: Tx) -> list[Call]:
    """All open cards of runs that have not ended."""
    return [
        call
        for run in tx.runs(limit=1000)
        if not run.status.is_terminal
        for call in tx.calls_of_run(run.id)
        if call.is_open
    ]
