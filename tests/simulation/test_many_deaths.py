"""Every story, with a process that dies again and again: while it recovers, while people decide, in the same action."""

import random  # noqa: TID251  # the seed is the test's

import pytest

from tests.simulation.play import play, undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.seen import assert_same
from tests.simulation.stage import is_doubtful

DEATHS = 4
SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_several_deaths_change_nothing_either(scenario: Scenario, seed: int) -> None:
    """Places are counted through all processes, so later deaths are often in a recovery."""
    alive = undisturbed(scenario, eager=seed % 2 == 1)
    places = random.Random(f"{scenario}-{seed}").sample(range(len(alive.places)), DEATHS)
    died = play(scenario, deaths=frozenset(places), eager=seed % 2 == 1)

    assert_same(died.seen, alive.seen, interleaves=scenario.interleaves)
    assert all(is_doubtful(died, call_id) for call_id in died.seen.in_doubt)
