"""Two processes on one database, both awake when a run can go on (C14)."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from signoff.testing.places import Places
from signoff.testing.stepped import Runner, SteppedStore, idle, stepped
from signoff.testing.stores import StoreFactory, sql_stores
from signoff.testing.world import World
from tests.simulation.play import empty_database, undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import APPROVED, GRANDCHILD, PARALLEL_CHILDREN, three
from tests.simulation.seen import Seen, assert_same, look
from tests.simulation.stage import open_cards
from tests.simulation.town import Town

#: A second process looks for pending runs this often.
POLL = timedelta(seconds=1)
#: Turns of the event loop between the decision and the other process' look: every way for the two to meet.
HEAD_STARTS = range(8)


@pytest.mark.parametrize("scenario", [APPROVED, three("ABC"), GRANDCHILD, PARALLEL_CHILDREN], ids=str)
def test_c14_one_of_two_processes_executes(scenario: Scenario) -> None:
    """The process that takes the decision wakes the run at once; the other one finds it a little later."""
    lost = [_race_on_new_database(scenario, head_start) for head_start in HEAD_STARTS]

    assert sum(lost) > 0, "the two never wanted the same run at the same time"


def _race_on_new_database(scenario: Scenario, head_start: int) -> int:
    """How many claims were lost."""
    places = Places(frozenset(), lambda: None)
    with database() as (url, run):
        race = Race(scenario, lambda changed: SteppedStore(url, changed=changed, faults=places))
        seen = run(race.run(head_start))
    claims = sum(place.labels.count("engine:claim") for place in places.passed if place.when == "after")

    assert seen.in_doubt == frozenset()
    assert_same(seen, undisturbed(scenario).seen, interleaves=scenario.interleaves)
    return claims - sum(row.fence for row in seen.rows.engine_runs.values())


@pytest.mark.parametrize("attempt", range(5))
async def test_c14_threads_of_two_real_stores_race(attempt: int, tmp_path: Path) -> None:
    """As above, with real writer threads, and several runs at once."""
    town = Town({f"Go {attempt}-{number}.": APPROVED.says["Go on."] for number in range(8)}, mark=lambda what: None)
    world = World(sql_stores(f"sqlite:///{tmp_path / 'desk.db'}"), durable="strict", agents=APPROVED.agents(town))
    first, second = await world.start(), await world.start()
    runs = [await world.send(f"Go {attempt}-{number}.", to=[first, second][number % 2]) for number in range(8)]
    cards = [await world.card(run) for run in runs]
    for run in runs:
        await world.parked(run)

    await asyncio.gather(*(world.approve(card, to=[second, first][n % 2]) for n, card in enumerate(cards)))
    world.clock.advance(POLL)
    for run in runs:
        await world.completed(run)
    engine = first.engine
    assert engine is not None
    await world.until(
        lambda tx: all(run.status.is_terminal for run in engine.runs(tx, limit=100)) or None, "the end of all runs"
    )
    seen = await look(world, town)
    await world.close()

    assert len(town.bank.orders) == len(runs)
    assert seen.in_doubt == frozenset()


class Race:
    """Two processes and one run. A `scenario.Scene`, whose people speak to the second process."""

    def __init__(self, scenario: Scenario, stores: StoreFactory) -> None:
        self.town = Town(scenario.says, mark=lambda what: None)
        self.world = World(stores, durable="strict", agents=scenario.agents(self.town))
        self._scenario = scenario

    async def run(self, head_start: int) -> Seen:
        """Play the scenario; the first process looks for work `head_start` turns of the loop after each decision."""
        world = self.world
        first, second = await world.start(), await world.start()
        await world.send(self._scenario.messages[0], to=first)
        engine = second.engine
        assert engine is not None
        while True:
            await idle()
            if await world.read(lambda tx: all(run.status.is_terminal for run in engine.runs(tx, limit=100))):
                break
            for card in sorted(await world.read(open_cards), key=self._scenario.order)[:1]:
                deciding = asyncio.ensure_future(self._scenario.people(self, card))
                for _ in range(head_start):
                    await asyncio.sleep(0)
                world.clock.advance(POLL)
                await deciding
            await idle()
            world.clock.advance(POLL)
        seen = await look(world, self.town)
        await world.close()
        return seen


@contextmanager
def database() -> Iterator[tuple[str, Runner]]:
    """An empty database, and a loop for processes on it."""
    with tempfile.TemporaryDirectory() as home, stepped() as run:
        file = Path(home) / "desk.db"
        file.write_bytes(empty_database())
        yield f"sqlite:///{file}", run
