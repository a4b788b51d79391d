"""Every story, with a database that refuses for a while: at each transaction in turn, locked or with a full disk.

A turn that comes through is as if nothing had been; one that does not ends cleanly. Nothing happens twice.
"""

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

import pytest
from sqlalchemy.exc import OperationalError

from signoff.domain.run import RunStatus
from tests.simulation.play import play, undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import APPROVED, GRANDCHILD, SCENARIOS, SLOWLY
from tests.simulation.seen import assert_same


class Kind(StrEnum):
    """How the database refuses."""

    LOCKED = "locked"
    FULL = "full"


@dataclass(slots=True, kw_only=True)
class Outage:
    """`refusals` in a row, from the `first`-th transaction on (from 0). A full disk is noticed when committing."""

    kind: Kind
    first: int
    refusals: int
    begun: int = field(default=-1, init=False)

    def begin(self) -> None:
        """See `testing.stepped.Refusals`."""
        self.begun += 1
        if self.kind is Kind.LOCKED:
            self._refuse("BEGIN", "database is locked", sqlite3.SQLITE_BUSY)

    def commit(self) -> None:
        """See `testing.stepped.Refusals`."""
        if self.kind is Kind.FULL:
            self._refuse("COMMIT", "database or disk is full", sqlite3.SQLITE_FULL)

    def _refuse(self, statement: str, text: str, code: int) -> None:
        if self.first <= self.begun < self.first + self.refusals:
            error = sqlite3.OperationalError(text)
            error.sqlite_errorcode = code
            raise OperationalError(statement, None, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A scenario and what its database does. `eager`: see `testing.stepped.SteppedStore`."""

    scenario: Scenario
    kind: Kind
    first: int
    refusals: int
    eager: bool

    def __str__(self) -> str:
        return f"{self.scenario}-{'eager-' if self.eager else ''}{self.kind}-{self.first}+{self.refusals}"

    def outage(self) -> Outage:
        """The outage, for one play."""
        return Outage(kind=self.kind, first=self.first, refusals=self.refusals)


def every_outage(scenario: Scenario, *, refusals: int, eager: bool = False) -> list[Trial]:
    """One at each commit of the scenario; every other one is a full disk."""
    commits = undisturbed(scenario, eager=eager).commits
    kinds = [Kind.LOCKED, Kind.FULL]
    return [
        Trial(scenario=scenario, kind=kinds[first % 2], first=first, refusals=refusals, eager=eager)
        for first in range(commits)
    ]


SHORT = [trial for scenario in SCENARIOS for trial in every_outage(scenario, refusals=2)]
#: Here a write that nobody waits for is refused on its own, and what comes after it is not.
GAPS = [trial for scenario in SLOWLY for trial in every_outage(scenario, refusals=1, eager=True)]
LONG = every_outage(APPROVED, refusals=15)
PATIENT = every_outage(APPROVED, refusals=2) + every_outage(GRANDCHILD, refusals=2)


@pytest.mark.parametrize("trial", SHORT + GAPS + LONG, ids=str)
def test_an_outage_ends_no_turn_in_a_mess(trial: Trial) -> None:
    """The store has no patience at all, so everybody above it hears of the outage."""
    outage = trial.outage()
    alive = undisturbed(trial.scenario, eager=trial.eager).seen
    seen = play(trial.scenario, eager=trial.eager, refusals=outage).seen

    assert outage.begun > trial.first, "the outage never came"
    assert not Counter(seen.effects) - Counter(alive.effects), "something happened twice"
    for mine, run in zip(alive.rows.runs, seen.rows.runs, strict=True):
        assert run.status is mine.status, f"{run.id} is {run.status}: {run.error}"
    assert_same(seen, alive, interleaves=True)


@pytest.mark.parametrize("trial", PATIENT, ids=str)
def test_a_patient_store_hides_an_outage(trial: Trial) -> None:
    """Within the store's patience nobody else notices."""
    outage = trial.outage()
    played = play(trial.scenario, refusals=outage, patience=timedelta(seconds=30))

    assert outage.begun > trial.first
    assert played.seen.in_doubt == frozenset()
    assert all(run.status is not RunStatus.FAILED for run in played.seen.rows.runs)
    assert_same(played.seen, undisturbed(trial.scenario).seen, interleaves=False)
