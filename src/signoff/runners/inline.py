"""Runs turns in this process: nothing survives it, everything else is as in the durable runner.

The loop gets a `Context` without a journal. A run whose process died is settled by a sweep of whoever opens the
database next, so that its thread is free and its cards refuse.
"""

import asyncio
import logging
from datetime import timedelta

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Run, RunStatus
from signoff.errors import ChildCancelled, SignoffError, StepFailed
from signoff.ports.clock import Timer
from signoff.ports.engine import Handler, SignalOutcome
from signoff.ports.store import Tx
from signoff.runners.inline_run import InlineRun
from signoff.turn import settle
from signoff.turn.deps import TurnDeps
from signoff.turn.failure import wire_code
from signoff.turn.input import TurnInput
from signoff.turn.llm import ModelCalls
from signoff.turn.tool_calls import ToolCalls

_log = logging.getLogger("signoff.inline")

LEASE = timedelta(seconds=30)


class InlineRunner:
    """Drives each run as a task of the running event loop."""

    durable = False

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps
        self._owner = deps.ids.new("inline")
        self._handlers: dict[str, Handler] = {"llm": ModelCalls(deps), "tools": ToolCalls(deps)}
        self._runs: dict[str, InlineRun] = {}
        self._lease_timer: Timer | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._closing = False

    async def open(self) -> None:
        """Settle what processes that died have left, and keep the leases of our own runs fresh."""
        self._closing = False
        await self._sweep()
        self._arm()

    async def close(self) -> None:
        """Stop all runs of this process. They are lost, as this runner says; their rows are settled as failed."""
        self._closing = True
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        tasks = [run.task for run in self._runs.values() if run.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._chores, return_exceptions=True)

    def start(self, tx: Tx, run: Run) -> None:
        """See `ports.runner.Runner`."""
        tx.change_run(run.id, owner=self._owner, lease_until=self._deps.clock.now() + LEASE)
        tx.on_commit(lambda: self.launch(TurnInput.of(run)))

    def signal(self, tx: Tx, run_id: str, name: str, payload: JsonObject, *, dedup_key: str) -> SignalOutcome:
        """See `ports.runner.Runner`. A run that lives in another process, or died with it, cannot be reached."""
        del dedup_key  # the card's conditional write has let only one decision through
        run = self._runs.get(run_id)
        if run is None:
            return SignalOutcome.UNKNOWN
        tx.on_commit(lambda: run.deliver(name, payload))
        return SignalOutcome.ACCEPTED

    def cancel(self, tx: Tx, run_id: str) -> bool:
        """See `ports.runner.Runner`. A run without a process is settled at once."""
        row = tx.run(run_id)
        if row is None or row.status.is_terminal:
            return False
        for child in tx.children_of(run_id):
            if not child.detached:
                self.cancel(tx, child.id)
        live = self._runs.get(run_id)
        if live is None or row.parked:
            settle.cancel(tx, row, deps=self._deps)
        if live is not None:
            tx.on_commit(live.cancel)
        return True

    def _launch(self, turn: TurnInput, parent: "InlineRun | None" = None) -> "InlineRun":
        run = InlineRun(self, self._deps, turn, self._handlers)
        if parent is not None:
            parent.on_cancel(run.cancel)
        self._runs[turn.run_id] = run
        run.task = asyncio.ensure_future(run.drive())
        run.task.add_done_callback(lambda _: self._runs.pop(turn.run_id, None))
        return run

    async def run_child(self, parent: "InlineRun", turn: TurnInput) -> Json:
        """Run a linked child to its end; its result, or the error that its parent's call gets."""
        child = self._launch(turn, parent)
        assert child.task is not None
        await asyncio.shield(child.task)
        parent.raise_if_cancelled()
        if child.cancelled:
            raise ChildCancelled(turn.run_id)
        if child.error is not None:
            raise StepFailed(
                turn.agent,
                error_type=type(child.error).__name__,
                message=str(child.error),
                error_code=wire_code(child.error),
            )
        return child.result

    def launch(self, turn: TurnInput) -> None:
        """Start a run that nobody in memory waits for."""
        self._launch(turn)

    def _arm(self) -> None:
        self._lease_timer = self._deps.clock.call_at(self._deps.clock.now() + LEASE / 3, self._renew)

    def _renew(self) -> None:
        if self._closing:
            return

        async def renew() -> None:
            until = self._deps.clock.now() + LEASE
            try:
                await self._deps.store.transact("inline:lease", lambda tx: tx.renew_leases(self._owner, until))
                await self._sweep()
            except SignoffError:
                _log.exception("the leases of inline runs could not be renewed; trying again")

        chore = asyncio.ensure_future(renew())
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
        self._arm()

    async def _sweep(self) -> None:
        """Settle inline runs whose process has not renewed its lease: nobody drives them any more."""
        now = self._deps.clock.now()

        def write(tx: Tx) -> None:
            for run in tx.runs(status=RunStatus.RUNNING, durable=False, lease_before=now, limit=500):
                if run.id not in self._runs:
                    settle.fail(
                        tx,
                        run,
                        deps=self._deps,
                        code="run_failed",
                        text="the server stopped in the middle of this turn",
                    )

        await self._deps.store.transact("inline:sweep", write)
