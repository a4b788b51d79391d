"""Runs each turn as a workflow of the durable engine: the same loop, over a `Context` with a journal."""

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Run
from signoff.ports.engine import Context, Engine, SignalOutcome
from signoff.ports.store import Tx
from signoff.runners.settler import Settler
from signoff.turn import settle
from signoff.turn.delegate import WORKFLOW
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.llm import ModelCalls
from signoff.turn.loop import run_turn
from signoff.turn.tool_calls import ToolCalls


class DurableRunner:
    """Joins loop and engine. Without `drive` this process takes part, but executes nothing."""

    durable = True

    def __init__(self, deps: TurnDeps, engine: Engine, *, drive: bool = True) -> None:
        self._deps = deps
        self._engine = engine
        self._drive = drive
        engine.register(WORKFLOW, self._body)
        engine.serve("llm", ModelCalls(deps))
        engine.serve("tools", ToolCalls(deps))

    async def open(self) -> None:
        """See `ports.runner.Runner`."""
        await self._engine.open(Settler(self._deps, self._engine), drive=self._drive)

    async def close(self) -> None:
        """See `ports.runner.Runner`. Runs go on in the next process."""
        await self._engine.drain()

    def start(self, tx: Tx, run: Run) -> None:
        """See `ports.runner.Runner`."""
        self._engine.start(tx, run_id=run.id, workflow=WORKFLOW, input_=run.input)

    def signal(self, tx: Tx, run_id: str, name: str, payload: JsonObject, *, dedup_key: str) -> SignalOutcome:
        """See `ports.runner.Runner`."""
        return self._engine.signal(tx, run_id, name, payload, dedup_key=dedup_key)

    def cancel(self, tx: Tx, run_id: str) -> bool:
        """See `ports.runner.Runner`. Needs nothing but rows: whatever else is broken, a run can be stopped."""
        if self._engine.cancel(tx, run_id):
            return True
        run = tx.run(run_id)
        if run is None or run.status.is_terminal:
            return False
        # A row that the engine does not know: another runner's, or one whose engine rows were pruned.
        return settle.cancel(tx, run, deps=self._deps)

    async def _body(self, ctx: Context, input_: JsonObject) -> Json:
        return await run_turn(ctx, self._deps, TurnInput.from_json(input_))
