"""How an execution of a run is stopped from below."""

from enum import StrEnum
from typing import ClassVar

from signoff.errors import ControlFlow


class Released(ControlFlow):
    """Unwinds a run that this process lets go: it goes back to pending, and nobody counts a crash."""

    signoff_control_flow: ClassVar[str] = "released"


class Why(StrEnum):
    """Why the database refused a write to the journal."""

    LOST = "lost"
    CANCELLED = "cancelled"
    GAP = "gap"


class Refused(Exception):
    """A guarded statement wrote nothing. Raised inside a transaction (it rolls back), translated outside.

    `LOST`: another worker holds the run, or it has ended. `CANCELLED`: the run is cancelling. `GAP`: a result that
    the body has seen already never reached the database.
    """

    def __init__(self, run_id: str, why: Why) -> None:
        super().__init__(f"write to run {run_id!r} refused: {why}")
        self.run_id = run_id
        self.why = why
