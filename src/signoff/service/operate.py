"""What an operator does with runs: look, stop, drive again, prune. No ownership: whoever may reach the database may."""

from dataclasses import dataclass
from datetime import datetime

from signoff.domain.call import Call
from signoff.domain.frame import instant
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Run, RunStatus, UsageEntry
from signoff.errors import InvalidInput, NotFound
from signoff.ports.engine import Engine, EngineRun, JournalEntry
from signoff.ports.store import Store, Tx
from signoff.turn import settle
from signoff.turn.deps import SettleDeps

JOURNAL_FORMAT = 1
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run with what belongs to it. `engine` is None for an inline run."""

    run: Run
    engine: EngineRun | None
    calls: list[Call]
    children: list[Run]
    usage: list[UsageEntry]


class Operator:
    """Works on the database beside, or without, a running application."""

    def __init__(self, store: Store, engine: Engine, deps: SettleDeps) -> None:
        self._store = store
        self._engine = engine
        self._deps = deps

    async def list_runs(
        self,
        *,
        status: RunStatus | None = None,
        parked: bool | None = None,
        agent: str | None = None,
        fingerprint: str | None = None,
        tenant: str | None = None,
        limit: int = 100,
        before_id: str | None = None,
    ) -> list[Run]:
        """Runs that match, newest first."""
        return await self._store.read(
            lambda tx: tx.runs(
                status=status,
                parked=parked,
                agent=agent,
                fingerprint=fingerprint,
                tenant=tenant,
                limit=limit,
                before_id=before_id,
            )
        )

    async def show(self, run_id: str) -> RunView:
        """One run. Raises `NotFound`."""

        def look(tx: Tx) -> RunView:
            return RunView(
                run=_run(tx, run_id),
                engine=self._engine.get(tx, run_id),
                calls=tx.calls_of_run(run_id),
                children=tx.children_of(run_id),
                usage=tx.usage_of_run(run_id),
            )

        return await self._store.read(look)

    async def journal(self, run_id: str) -> list[JournalEntry]:
        """The run's checkpoints in position order. Raises `NotFound`, also for a run without a journal."""

        def look(tx: Tx) -> list[JournalEntry]:
            if self._engine.get(tx, run_id) is None:
                raise NotFound("journal of run", run_id)
            return self._engine.history(tx, run_id)

        return await self._store.read(look)

    async def export(self, run_id: str) -> JsonObject:
        """The journal as a file that `replay-check` reads. Raises `NotFound`."""

        def look(tx: Tx) -> JsonObject:
            run = self._engine.get(tx, run_id)
            if run is None:
                raise NotFound("journal of run", run_id)
            return exported(run, self._engine.history(tx, run_id))

        return await self._store.read(look)

    async def export_active(self) -> list[JsonObject]:
        """The journals of all runs that have not ended, oldest first."""

        def look(tx: Tx) -> list[JsonObject]:
            found: list[JsonObject] = []
            page = self._engine.runs(tx, limit=PAGE)
            while page:
                found += [exported(run, self._engine.history(tx, run.id)) for run in page if not run.status.is_terminal]
                page = self._engine.runs(tx, limit=PAGE, after_id=page[-1].id)
            return found

        return await self._store.read(look)

    async def cancel(self, run_id: str) -> None:
        """Stop the run and its linked children. Raises `NotFound`; `InvalidInput` if it has ended."""

        def write(tx: Tx) -> None:
            run = _run(tx, run_id)
            if run.status.is_terminal:
                raise InvalidInput(f"run {run_id!r} has ended: {run.status.value}", field="run")
            if not self._engine.cancel(tx, run_id):
                settle.cancel(tx, run, deps=self._deps)

        await self._store.transact("operator:cancel", write)

    async def retry(self, run_id: str) -> None:
        """Drive a failed run again, from where its journal ends. Raises `NotFound`, `InvalidInput`."""

        def write(tx: Tx) -> None:
            run = _run(tx, run_id)
            if not run.durable:
                raise InvalidInput(f"run {run_id!r} ran inline; there is no journal to go on from", field="run")
            if not self._engine.retry(tx, run_id):
                raise InvalidInput(f"run {run_id!r} has not failed: {run.status.value}", field="run")
            _reopen_family(tx, run)

        await self._store.transact("operator:retry", write)

    async def prune(self, *, before: datetime, limit: int = 1000) -> int:
        """Delete runs that ended before `before` (aware UTC) with journals and frames; how many.

        Messages, calls, audit and ledger stay.
        """

        def write(tx: Tx) -> int:
            pruned = self._engine.prune(tx, before=before, limit=limit)
            # No engine knows of those that ran inline.
            pruned += [run.id for run in tx.runs(durable=False, ended_before=before, limit=limit)]
            for run_id in pruned:
                tx.delete_run(run_id)
            return len(pruned)

        return await self._store.transact("operator:prune", write)


def exported(run: EngineRun, entries: list[JournalEntry]) -> JsonObject:
    """A run's journal as JSON: stable, so that it can be kept with the code and replayed against later builds."""
    return {
        "format": JOURNAL_FORMAT,
        "run": {
            "id": run.id,
            "workflow": run.workflow,
            "input": run.input,
            "status": run.status.value,
            "createdAt": instant(run.created_at),
        },
        "entries": [_entry(entry) for entry in entries],
    }


def _entry(entry: JournalEntry) -> Json:
    return {
        "position": entry.position,
        "kind": entry.kind,
        "name": entry.name,
        "state": entry.state,
        "attempt": entry.attempt,
        "body": entry.body,
        "at": entry.at.isoformat(),
    }


def _run(tx: Tx, run_id: str) -> Run:
    run = tx.run(run_id)
    if run is None:
        raise NotFound("run", run_id)
    return run


def _reopen_family(tx: Tx, run: Run) -> None:
    """The run, and the linked children that the engine drives again with it."""
    settle.reopen(tx, run)
    for child in tx.children_of(run.id):
        if not child.detached and child.status is RunStatus.FAILED:
            _reopen_family(tx, child)
