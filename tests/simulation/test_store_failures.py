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
from tests.simulation.scenarios import APPROVED, GRANDCHILD, SCENARIOS
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

    def __str__(self) -> str:
        return f"{self.kind}-{self.first}+{self.refusals}"


def every_outage(scenario: Scenario, *, refusals: int) -> list[tuple[Scenario, int, Kind, int]]:
    """One at each commit of the scenario; every other one is a full disk."""
    commits = undisturbed(scenario).commits
    return [(scenario, first, [Kind.LOCKED, Kind.FULL][first % 2], refusals) for first in range(commits)]


SHORT = [outage for scenario in SCENARIOS for outage in every_outage(scenario, refusals=2)]
LONG = every_outage(APPROVED, refusals=15)
PATIENT = every_outage(APPROVED, refusals=2) + every_outage(GRANDCHILD, refusals=2)


@pytest.mark.parametrize(("scenario", "first", "kind", "refusals"), SHORT + LONG, ids=str)
def test_an_outage_ends_no_turn_in_a_mess(scenario: Scenario, first: int, kind: Kind, refusals: int) -> None:
    """The store has no patience at all, so everybody above it hears of the outage."""
    outage = Outage(kind=kind, first=first, refusals=refusals)
    alive = undisturbed(scenario).seen
    seen = play(scenario, refusals=outage).seen

    assert outage.begun > first, "the outage never came"
    assert not Counter(seen.effects) - Counter(alive.effects), "something happened twice"
    for mine, run in zip(alive.rows.runs, seen.rows.runs, strict=True):
        assert run.status is mine.status, f"{run.id} is {run.status}: {run.error}"
    assert_same(seen, alive, interleaves=True)


@pytest.mark.parametrize(("scenario", "first", "kind", "refusals"), PATIENT, ids=str)
def test_a_patient_store_hides_an_outage(scenario: Scenario, first: int, kind: Kind, refusals: int) -> None:
    """Within the store's patience nobody else notices."""
    outage = Outage(kind=kind, first=first, refusals=refusals)
    alive = undisturbed(scenario)
    played = play(scenario, refusals=outage, patience=timedelta(seconds=30))

    assert outage.begun > first
    assert played.seen.in_doubt == frozenset()
    assert all(run.status is not RunStatus.FAILED for run in played.seen.rows.runs)
    assert_same(played.seen, alive.seen, interleaves=False)
