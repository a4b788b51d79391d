"""`signoff migrate`: bring a database's schema up to date."""

import asyncio
from typing import Annotated

import typer

from signoff.cli.desk import DATABASE_HELP


def migrate(database: Annotated[str, typer.Option(help=DATABASE_HELP)] = "sqlite:///signoff.db") -> None:
    """Bring a database's schema up to date. Applications do so on start, unless told `migrate=False`."""
    from signoff.adapters.stores.sql import SqlStore

    async def run() -> None:
        store = SqlStore(database)
        await store.open()
        await store.close()

    asyncio.run(run())
    print("up to date")
