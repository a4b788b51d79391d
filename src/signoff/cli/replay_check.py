"""`signoff replay-check`: would the code at hand go on with the runs that are parked?"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from signoff.cli.desk import DATABASE_HELP, operator
from signoff.cli.tables import show as show_table
from signoff.cli.tables import table
from signoff.cli.target import load
from signoff.domain.jsonvalue import JsonObject, as_object, decode
from signoff.errors import ConfigurationError, NotJson
from signoff.runners.replay import ReplayReport
from signoff.service.replay_check import ReplayCheck


def replay_check(
    target: Annotated[str, typer.Argument(help="The application, as module:attribute.")],
    journals: Annotated[Path | None, typer.Option(help="A folder of exported journals (*.json).")] = None,
    database: Annotated[str | None, typer.Option(help=f"All parked runs of a database. {DATABASE_HELP}")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Replay recorded journals against the application: no model and no tool is called, nothing is written.

    Exit code 1 if the code would diverge from a journal; the first position that differs is named.
    """
    if (journals is None) == (database is None):
        raise ConfigurationError("give either --journals DIR or --database URL")
    check = ReplayCheck(load(target).deps.turn)
    recorded = _from_folder(journals) if journals is not None else asyncio.run(_from_database(str(database)))
    reports = asyncio.run(check.all(recorded))
    if as_json:
        print(json.dumps([_json(report) for report in reports], indent=1))
    else:
        _print(reports)
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


def _from_folder(folder: Path) -> list[JsonObject]:
    """The journals of a folder, by file name.

    Raises:
        ConfigurationError: no such folder, nothing in it, or a file that is no journal (named).
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ConfigurationError(f"there are no journals (*.json) in {str(folder)!r}")
    recorded = []
    for path in paths:
        try:
            recorded.append(as_object(decode(path.read_text()), what=str(path)))
        except (ValueError, NotJson) as error:
            raise ConfigurationError(f"{str(path)!r} is no exported journal: {error}") from error
    return recorded


async def _from_database(database: str) -> list[JsonObject]:
    """The journals of all durable runs that have not ended."""
    async with operator(database) as desk:
        return await desk.export_active()


def _print(reports: Sequence[ReplayReport]) -> None:
    diverged = [report for report in reports if not report.ok]
    if diverged:
        shown = table("run", "position", "journal holds", "code asks for")
        for report in diverged:
            shown.add_row(report.run_id, str(report.position), report.expected or "", report.found or "")
        show_table(shown)
    print(f"{len(reports)} replayed, {len(diverged)} diverged")


def _json(report: ReplayReport) -> JsonObject:
    return {
        "runId": report.run_id,
        "ok": report.ok,
        "replayed": report.replayed,
        "position": report.position,
        "expected": report.expected,
        "found": report.found,
    }
