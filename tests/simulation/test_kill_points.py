"""Every story, with its process ending at every commit and around every effect and reply in turn.

Afterwards the outside world, the thread, the stream and the records are those of the play in which nothing died.
"""

from dataclasses import dataclass

import pytest

from signoff.testing.places import Place
from tests.simulation.play import Played, play, undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS, SLOWLY
from tests.simulation.seen import assert_same, attempts
from tests.simulation.stage import is_doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """A place in a scenario, and the play of it in which nothing dies. `eager`: see `testing.stepped.SteppedStore`."""

    scenario: Scenario
    place: Place
    alive: Played
    eager: bool

    def __str__(self) -> str:
        return f"{self.scenario}-{'eager-' if self.eager else ''}{self.place}"


def every_kill_point(scenario: Scenario, *, eager: bool = False) -> list[KillPoint]:
    """All places of the scenario, found by playing it once."""
    alive = undisturbed(scenario, eager=eager)
    return [KillPoint(scenario=scenario, place=place, alive=alive, eager=eager) for place in alive.places]


KILL_POINTS = [kill for scenario in SCENARIOS for kill in every_kill_point(scenario)]
KILL_POINTS += [kill for scenario in SLOWLY for kill in every_kill_point(scenario, eager=True)]


@pytest.mark.parametrize("kill", KILL_POINTS, ids=str)
def test_a_death_changes_nothing_that_anybody_sees(kill: KillPoint) -> None:
    """Die at `kill`, start again on the same database, and look from outside."""
    died = play(kill.scenario, deaths=frozenset({kill.place.number}), eager=kill.eager)

    assert died.places[: kill.place.number + 1] == kill.alive.places[: kill.place.number + 1], "another way to there"
    assert_same(died.seen, kill.alive.seen, interleaves=kill.scenario.interleaves)
    assert died.seen.in_doubt == in_doubt_at(kill)
    assert all(count <= 2 for count in attempts(died.seen).values())


def in_doubt_at(kill: KillPoint) -> frozenset[str]:
    """The actions that a death at this place puts in doubt: those that have begun and have no result."""
    begun: set[str] = set()
    for place in kill.alive.places[: kill.place.number + 1]:
        if place.when != "after":
            continue
        for label in place.labels:
            match label.split():
                case ["dispatch", name] if name.startswith("tool:"):
                    begun.add(name.split(":")[1])
                case ["dispatch", name, "done" | "failed"] if name.startswith("tool:"):
                    begun.discard(name.split(":")[1])
                case _:
                    pass
    return frozenset(call_id for call_id in begun if is_doubtful(kill.alive, call_id))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_commit_is_left_out(scenario: Scenario) -> None:
    """Each commit that the database saw is a place before and a place after."""
    alive = play(scenario)
    before = [place for place in alive.places if place.when == "before"]
    after = [place for place in alive.places if place.when == "after"]

    assert len(before) == len(after) == alive.commits
    assert [place.labels for place in before] == [place.labels for place in after]
    assert alive.places == undisturbed(scenario).places, "another play takes another way"
    assert alive.places == [kill.place for kill in KILL_POINTS if kill.scenario is scenario and not kill.eager]


def test_there_are_many_places() -> None:
    """Fewer, larger commits are welcome; a scenario that silently stops before its story is told is not."""
    assert len(KILL_POINTS) > 1500
    assert min(len(undisturbed(scenario).places) for scenario in SCENARIOS) > 20
