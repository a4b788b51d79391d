"""What the use cases need of a runner: the inline and the durable one look the same to them."""

from typing import Protocol

from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Run
from signoff.ports.engine import SignalOutcome
from signoff.ports.store import Tx


class Runner(Protocol):
    """Drives runs. The methods with a `tx` belong into the caller's transaction and take effect when it commits."""

    @property
    def durable(self) -> bool:
        """Whether runs survive this process."""
        ...

    async def open(self) -> None:
        """Begin to drive runs."""
        ...

    async def close(self) -> None:
        """Take nothing new, let go of what runs, write nothing afterwards."""
        ...

    def start(self, tx: Tx, run: Run) -> None:
        """Drive this run, whose row was inserted in the same transaction."""
        ...

    def signal(self, tx: Tx, run_id: str, name: str, payload: JsonObject, *, dedup_key: str) -> SignalOutcome:
        """Hand a decision to the run that waits, or will wait, for it."""
        ...

    def cancel(self, tx: Tx, run_id: str) -> bool:
        """Stop the run and its linked children: at its next safe point, at once while parked. False: it had ended."""
        ...
