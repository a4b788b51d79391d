"""What people read follows the engine: rows are settled in the transaction in which the engine ends a run."""

from signoff.ports.engine import EngineStatus
from signoff.ports.store import Tx
from signoff.turn import settle
from signoff.turn.deps import SettleDeps
from signoff.turn.failure import wire_code


class Settler:
    """The engine's observer (`ports.engine.RunObserver`)."""

    def __init__(self, deps: SettleDeps) -> None:
        self._deps = deps

    def ended(self, tx: Tx, run_id: str, status: EngineStatus, error: BaseException | None, error_text: str) -> None:
        """See `ports.engine.RunObserver`."""
        run = tx.run(run_id)
        if run is None or run.status.is_terminal:
            return
        if status is EngineStatus.CANCELLED:
            settle.cancel(tx, run, deps=self._deps)
            return
        text = error_text or "the workers that ran this turn died"
        settle.fail(tx, run, deps=self._deps, code=wire_code(error), text=text)

    def parked(self, tx: Tx, run_id: str, parked: bool) -> None:
        """See `ports.engine.RunObserver`."""
        tx.change_run(run_id, parked=parked)
