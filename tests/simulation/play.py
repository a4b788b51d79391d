"""Plays a scenario, with the process ending where it is told to, until everything that was begun has ended."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

from signoff.adapters.stores.sql import SqlStore
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import Context
from signoff.testing.places import Place, Places
from signoff.testing.stepped import Refusals, SteppedStore, idle, stepped
from signoff.testing.stores import Changed
from signoff.testing.world import ProcessDied
from signoff.turn.delegate import WORKFLOW
from signoff.turn.deps import TurnDeps
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Ended, Stage

TurnBody: TypeAlias = Callable[[TurnDeps, Context, JsonObject], Awaitable[Json]]
"""What a process runs as a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played(Ended):
    """A play that has come to its end: also the places it came by. `commits` is how many the database counted."""

    places: Sequence[Place]
    commits: int


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
        stage = SteppedStage(
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


class SteppedStage(Stage):
    """The embedded engine on SQLite, in one thread that takes the same steps each time."""

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
        self.places = Places(deaths, self._die)
        self.stores: list[SteppedStore] = []
        self._url = url
        self._eager = eager
        self._refusals = refusals
        self._patience = patience
        self._first_body = first_body
        super().__init__(scenario, mark=self.places.mark, engine="embedded")

    async def play(self) -> Played:
        """Play it to the end."""
        self._player = asyncio.current_task()
        ended = await self._play()
        places = list(self.places.passed)
        commits = sum(store.commits for store in self.stores)
        await self._close()
        return Played(seen=ended.seen, tools=ended.tools, places=places, commits=commits)

    def _store(self, changed: Changed) -> SteppedStore:
        store = SteppedStore(
            self._url,
            changed=changed,
            faults=self.places,
            eager=self._eager,
            refusals=self._refusals,
            patience=self._patience,
        )
        self.stores.append(store)
        return store

    async def _start(self) -> None:
        app = await self.world.start()
        if self._first_body is not None and len(self.stores) == 1:
            assert app.engine is not None
            app.engine.register(WORKFLOW, partial(self._first_body, app.deps.turn))

    async def _close(self) -> None:
        await self.world.close()

    async def _idle(self) -> None:
        await idle()
        if self.stores[-1].died.is_set():
            raise ProcessDied("while nobody looked")

    def _last_places(self) -> list[str]:
        return [str(place) for place in self.places.passed[-5:]]

    def _die(self) -> None:
        """The process ends here. None of its tasks runs any further, and nothing of it reaches the database."""
        self.world.kill()
        for task in asyncio.all_tasks():
            if task is not self._player:
                task.cancel()
