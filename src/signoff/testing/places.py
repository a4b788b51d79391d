"""Places to die: every commit, and whatever else a test marks, in the order in which a run comes by."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The `number`-th place of a play, from 0. `labels` are the transactions, or the mark."""

    number: int
    when: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number}-{self.when}-{'+'.join(self.labels)}"


class Died(Exception):
    """Raised at a commit: the process ends there."""


class Places:
    """Notes each place, and ends the process at the places in `deaths`. Also a `CommitFaults`.

    Args:
        deaths: numbers of places, counted through all processes of a play.
        die: ends the process, at once: nothing of it runs any further.
    """

    def __init__(self, deaths: frozenset[int], die: Callable[[], None]) -> None:
        self.passed: list[Place] = []
        self._deaths = deaths
        self._die = die

    @property
    def commits(self) -> int:
        """How many commits were come by."""
        return sum(place.when == "after" for place in self.passed)

    def before_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        if self._ends(Place(len(self.passed), "before", tuple(labels))):
            raise Died

    def after_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        if self._ends(Place(len(self.passed), "after", tuple(labels))):
            raise Died

    def mark(self, what: str) -> None:
        """A place in a tool or a model. A task that dies here is cancelled."""
        if self._ends(Place(len(self.passed), "at", (what,))):
            raise asyncio.CancelledError(f"the process ended {what}")

    def _ends(self, place: Place) -> bool:
        self.passed.append(place)
        if place.number not in self._deaths:
            return False
        self._die()
        return True
