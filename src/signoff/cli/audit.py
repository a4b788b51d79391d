"""`signoff audit …`: check and export the audit chain."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from signoff.adapters.stores.sql import SqlStore
from signoff.cli.desk import DATABASE_HELP
from signoff.domain.audit import audit_row
from signoff.domain.jsonvalue import JsonObject, encode
from signoff.domain.safetext import visible
from signoff.errors import InvalidInput
from signoff.governance.audit import ChainReport, Unreadable, check_chain, read_chain

DEFAULT = "sqlite:///signoff.db"

app = typer.Typer(name="audit", help="Check and export the record of what was asked and done.", no_args_is_help=True)

Database = Annotated[str, typer.Option(help=DATABASE_HELP)]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant. Default: all of them.")]


@app.command()
def verify(
    database: Database = DEFAULT,
    tenant: Tenant = None,
    anchor: Annotated[
        list[str] | None,
        typer.Option(help="SEQ:HASH, a row you noted down before; needs --tenant. May be given again."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Find rows that were changed, removed or reordered. Exit code 1 if there are any."""
    anchors = dict(_anchor(text) for text in anchor or [])
    if anchors and tenant is None:
        raise InvalidInput("--anchor needs --tenant: each tenant has a chain of its own")
    reports = asyncio.run(_verify(database, tenant, anchors))
    if as_json:
        print(json.dumps([_report_json(report) for report in reports], indent=1))
    else:
        for report in reports:
            _print_report(report)
        if not reports:
            print("no rows")
    if any(report.problems for report in reports):
        raise typer.Exit(1)


@app.command()
def export(
    database: Database = DEFAULT,
    tenant: Tenant = None,
    after: Annotated[int, typer.Option(min=0, help="Only rows behind this one; needs --tenant.")] = 0,
) -> None:
    """Write the rows as JSON, one a line, in order. A row that cannot be read is an error: verify tells more."""
    if after and tenant is None:
        raise InvalidInput("--after needs --tenant: each tenant has a chain of its own")
    asyncio.run(_export(database, tenant, after))


async def _verify(database: str, tenant: str | None, anchors: dict[int, str]) -> list[ChainReport]:
    async with _store(database) as store:
        return [await check_chain(store, each, anchors=anchors) for each in await _tenants(store, tenant)]


async def _export(database: str, tenant: str | None, after: int) -> None:
    async with _store(database) as store:
        for each in await _tenants(store, tenant):
            async for entry in read_chain(store, each, after_seq=after):
                if isinstance(entry, Unreadable):
                    raise InvalidInput(f"row {entry.seq} of tenant {each!r} cannot be read: run `signoff audit verify`")
                print(encode(audit_row(entry)))


@asynccontextmanager
async def _store(database: str) -> AsyncIterator[SqlStore]:
    store = SqlStore(database, migrate=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _tenants(store: SqlStore, tenant: str | None) -> list[str]:
    return [tenant] if tenant is not None else await store.read(lambda tx: tx.audit_tenants())


def _anchor(text: str) -> tuple[int, str]:
    seq, _, hash_ = text.partition(":")
    if not (seq.isascii() and seq.isdigit() and len(seq) <= 18 and hash_):
        raise InvalidInput(f"{text!r} is no anchor; write SEQ:HASH, as verify prints it")
    return int(seq), hash_.lower()


def _print_report(report: ChainReport) -> None:
    head = "no end noted" if report.head is None else f"{report.head.seq}:{report.head.hash}"
    verdict = "ok" if not report.problems else f"{len(report.problems)} problems"
    print(f"tenant {visible(report.tenant)!r}: {report.rows} rows, {head}: {verdict}")
    for problem in report.problems:
        print(f"  {problem.kind}: {problem.text}")


def _report_json(report: ChainReport) -> JsonObject:
    head = report.head
    return {
        "tenant": report.tenant,
        "rows": report.rows,
        "head": None if head is None else {"seq": head.seq, "hash": head.hash},
        "problems": [{"kind": item.kind.value, "seq": item.seq, "text": item.text} for item in report.problems],
    }
