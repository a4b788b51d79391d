"""`signoff runs …`: what an operator does with runs."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table

from signoff.adapters.system import SystemClock
from signoff.cli.desk import DATABASE_HELP, operator
from signoff.cli.tables import dollars, minute, table
from signoff.cli.tables import show as show_table
from signoff.domain.call import Call
from signoff.domain.frame import instant
from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Run, RunStatus
from signoff.errors import InvalidInput
from signoff.service.operate import Operator, RunView

T = TypeVar("T")

app = typer.Typer(name="runs", help="List, inspect and steer runs.", no_args_is_help=True)

Database = Annotated[str, typer.Option(help=DATABASE_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RunId = Annotated[str, typer.Argument(help="The run's id.")]

_PAGE = 1000

DEFAULT = "sqlite:///signoff.db"


@app.command("list")
def list_(
    database: Database = DEFAULT,
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status.")] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only runs that wait for a person.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    by_fingerprint: Annotated[
        bool, typer.Option("--by-fingerprint", help="Count all such runs per version of their agent.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""

    async def page(desk: Operator, limit: int, before_id: str | None = None) -> list[Run]:
        only_parked = True if parked else None
        return await desk.list_runs(status=status, parked=only_parked, agent=agent, limit=limit, before_id=before_id)

    async def every(desk: Operator) -> list[Run]:
        found = await page(desk, _PAGE)
        last = found
        while len(last) == _PAGE:
            last = await page(desk, _PAGE, last[-1].id)
            found += last
        return found

    if by_fingerprint:
        _print_fingerprints(_with(database, every), as_json=as_json)
        return
    runs = _with(database, lambda desk: page(desk, limit))
    if as_json:
        _print_json([_run_json(run) for run in runs])
    else:
        _print_runs(runs)


@app.command()
def show(run_id: RunId, database: Database = DEFAULT, as_json: AsJson = False) -> None:
    """Show one run with its calls, children and cost."""
    view = _with(database, lambda desk: desk.show(run_id))
    if as_json:
        _print_json(_view_json(view))
    else:
        _print_view(view)


@app.command()
def journal(run_id: RunId, database: Database = DEFAULT, as_json: AsJson = False) -> None:
    """Print a run's journal in position order."""
    if as_json:
        _print_json(_with(database, lambda desk: desk.export(run_id)))
        return
    entries = _with(database, lambda desk: desk.journal(run_id))
    shown = table("position", "kind", "name", "state", "attempt", "at")
    for entry in entries:
        shown.add_row(str(entry.position), entry.kind, entry.name, entry.state, str(entry.attempt), instant(entry.at))
    show_table(shown)


@app.command()
def export(
    run_id: RunId,
    database: Database = DEFAULT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write here, not to stdout.")] = None,
) -> None:
    """Write a run's journal as JSON, for `signoff replay-check`."""
    exported = json.dumps(_with(database, lambda desk: desk.export(run_id)), indent=1)
    if output is None:
        print(exported)
    else:
        output.write_text(exported + "\n")


@app.command()
def cancel(run_id: RunId, database: Database = DEFAULT) -> None:
    """Stop a run and its sub-agents. A parked one ends at once, a busy one at its next safe point."""
    _with(database, lambda desk: desk.cancel(run_id))
    print(f"cancelled: {run_id}")


@app.command()
def retry(run_id: RunId, database: Database = DEFAULT) -> None:
    """Drive a failed durable run again, from where its journal ends. A running server takes it up."""
    _with(database, lambda desk: desk.retry(run_id))
    print(f"pending again: {run_id}")


@app.command()
def prune(
    older_than_days: Annotated[float, typer.Option(help="Delete runs that ended before that many days ago.", min=0)],
    database: Database = DEFAULT,
) -> None:
    """Delete ended runs with their journals and frames. Messages, audit and ledger stay."""
    before = SystemClock().now() - timedelta(days=older_than_days)

    async def work(desk: Operator) -> int:
        total = 0
        while pruned := await desk.prune(before=before):
            total += pruned
        return total

    print(f"pruned: {_with(database, work)}")


def _with(database: str, work: Callable[[Operator], Awaitable[T]]) -> T:
    async def run() -> T:
        async with operator(database) as desk:
            return await work(desk)

    if not database:
        raise InvalidInput("--database must not be empty", field="database")
    return asyncio.run(run())


def _print_json(value: Json) -> None:
    print(json.dumps(value, indent=1))


def _print_runs(runs: Sequence[Run]) -> None:
    if not runs:
        print("no runs")
        return
    shown = table("run", "status", "agent", "actor", "steps", "tokens", "started (UTC)", "error")
    for run in runs:
        shown.add_row(
            run.id,
            _status(run),
            run.agent,
            run.actor_id,
            str(run.steps),
            str(run.input_tokens + run.output_tokens),
            minute(run.created_at),
            run.error_code or "",
        )
    show_table(shown)


def _print_fingerprints(runs: Sequence[Run], *, as_json: bool) -> None:
    counted: dict[tuple[str, str], int] = {}
    for run in runs:
        key = (run.agent, run.fingerprint)
        counted[key] = counted.get(key, 0) + 1
    if as_json:
        _print_json([{"agent": agent, "fingerprint": mark, "runs": n} for (agent, mark), n in counted.items()])
        return
    shown = table("agent", "fingerprint", "runs")
    for (agent, mark), n in sorted(counted.items()):
        shown.add_row(agent, mark, str(n))
    show_table(shown)


def _print_view(view: RunView) -> None:
    run, engine = view.run, view.engine
    facts = Table(show_header=False, box=None)
    for name, value in (
        ("run", run.id),
        ("status", _status(run)),
        ("runner", "durable" if run.durable else "inline"),
        ("agent", f"{run.agent} ({run.fingerprint})"),
        ("actor", run.actor_id),
        ("thread", run.thread_id),
        ("parent", run.parent_id),
        ("started", instant(run.created_at)),
        ("ended", None if run.ended_at is None else instant(run.ended_at)),
        ("cost", f"{run.input_tokens} + {run.output_tokens} tokens, {dollars(run.cost_usd)}"),
        ("error", None if run.error_code is None else f"{run.error_code}: {run.error}"),
        ("engine", None if engine is None else f"{engine.status.value}, fence {engine.fence}"),
        ("crashes", None if engine is None or not engine.crashes else str(engine.crashes)),
        ("waits for", None if engine is None or not engine.waits else ", ".join(engine.waits)),
    ):
        if value is not None:
            facts.add_row(name, value)
    show_table(facts)
    calls = table("call", "tool", "kind", "status", "decided by", "via", "resolved by")
    for call in view.calls:
        decided = (call.decided_by or "", call.decided_via or "", call.resolved_by or "")
        calls.add_row(call.id, call.name, call.kind.value, call.status.value, *decided)
    if view.calls:
        show_table(calls)
    if view.children:
        print("sub-agents:")
        _print_runs(view.children)


def _status(run: Run) -> str:
    return "parked" if run.parked and not run.status.is_terminal else run.status.value


def _run_json(run: Run) -> JsonObject:
    return {
        "id": run.id,
        "status": run.status.value,
        "parked": run.parked,
        "durable": run.durable,
        "agent": run.agent,
        "fingerprint": run.fingerprint,
        "actorId": run.actor_id,
        "tenant": run.tenant,
        "threadId": run.thread_id,
        "parentId": run.parent_id,
        "steps": run.steps,
        "inputTokens": run.input_tokens,
        "outputTokens": run.output_tokens,
        "costUsd": str(run.cost_usd),
        "errorCode": run.error_code,
        "error": run.error,
        "createdAt": instant(run.created_at),
        "endedAt": None if run.ended_at is None else instant(run.ended_at),
    }


def _call_json(call: Call) -> JsonObject:
    return {
        "id": call.id,
        "tool": call.name,
        "kind": call.kind.value,
        "status": call.status.value,
        "arguments": call.final_arguments,
        "decidedBy": call.decided_by,
        "decidedVia": call.decided_via,
        "inDoubt": call.in_doubt,
    }


def _view_json(view: RunView) -> JsonObject:
    engine = view.engine
    return {
        **_run_json(view.run),
        "engine": None
        if engine is None
        else {
            "status": engine.status.value,
            "fence": engine.fence,
            "crashes": engine.crashes,
            "waits": [*engine.waits],
        },
        "calls": [_call_json(call) for call in view.calls],
        "children": [_run_json(child) for child in view.children],
        "modelCalls": [
            {
                "step": entry.step,
                "attempt": entry.attempt,
                "model": entry.model,
                "inputTokens": entry.usage.input_tokens,
                "outputTokens": entry.usage.output_tokens,
            }
            for entry in view.usage
        ],
    }
