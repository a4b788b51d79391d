"""What people read follows the engine: rows are settled in the transaction in which the engine ends a run."""

from signoff.domain.run import Run
from signoff.errors import is_replay_integrity_error
from signoff.ports.engine import Engine, EngineStatus
from signoff.ports.events import EventName
from signoff.ports.store import Tx
from signoff.turn import settle
from signoff.turn.deps import SettleDeps
from signoff.turn.failure import wire_code
from signoff.turn.outcome import Outcome
from signoff.turn.record_outcome import record_outcome


def _needs_operator(status: EngineStatus, error: BaseException | None) -> bool:
    """Whether driving the run once more as it is would end the same: its journal or its code has to be mended."""
    return (
        status is EngineStatus.DEAD
        or getattr(error, "code", None) == "journal_corrupt"
        or (error is not None and is_replay_integrity_error(error))
    )


class Settler:
    """The observer of `engine` (`ports.engine.RunObserver`)."""

    def __init__(self, deps: SettleDeps, engine: Engine) -> None:
        self._deps = deps
        self._engine = engine

    def ended(self, tx: Tx, run_id: str, status: EngineStatus, error: BaseException | None, error_text: str) -> None:
        """See `ports.engine.RunObserver`."""
        run = tx.run(run_id)
        if run is None or run.status.is_terminal:
            return
        self._record_finished_tools(tx, run)
        if status is EngineStatus.CANCELLED:
            settle.cancel(tx, run, deps=self._deps)
        else:
            text = error_text or "the workers that ran this turn died"
            settle.fail(tx, run, deps=self._deps, code=wire_code(error), text=text)
            if _needs_operator(status, error):
                self._deps.events.emit_on_commit(
                    tx, EventName.RUN_SET_ASIDE, run_id=run.id, thread_id=run.thread_id, status=status.value
                )
        self._stop_children(tx, run_id)

    def _stop_children(self, tx: Tx, run_id: str) -> None:
        """Nobody waits for a sub-agent's answer any more; detached ones go on.

        A child may be a row only: its parent died between writing it and starting it.
        """
        for child in tx.children_of(run_id):
            if not child.detached and not child.status.is_terminal and not self._engine.cancel(tx, child.id):
                settle.cancel(tx, child, deps=self._deps)

    def _record_finished_tools(self, tx: Tx, run: Run) -> None:
        """What a tool did counts, also where the run ended before it could write that down.

        Otherwise the next turn would be told that a refund never completed, and make it again.
        """
        calls = {call.id: call for call in tx.calls_of_run(run.id)}
        for entry in self._engine.history(tx, run.id):
            step, _, rest = entry.name.partition(":")
            call = calls.get(rest.partition(":")[0])
            match entry.body:
                case {"status": "completed" | "failed"} if entry.kind == "dispatch" and step == "tool" and call:
                    outcome = Outcome.from_json(entry.body)
                    record_outcome(tx, call, outcome, stream_id=run.stream_id, deps=self._deps)

    def parked(self, tx: Tx, run_id: str, parked: bool) -> None:
        """See `ports.engine.RunObserver`."""
        tx.change_run(run_id, parked=parked)
