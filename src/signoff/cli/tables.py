"""Tables for people: ids and names are never cut, they are there to be copied."""

from datetime import datetime
from decimal import Decimal

from rich import box
from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 240


def table(*columns: str) -> Table:
    """A table whose first column stays on one line; the others fold at spaces, or anywhere, instead of being cut."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column == columns[0])
    return made


def show(made: Table) -> None:
    """Print it as wide as the terminal; into a pipe as wide as it is."""
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(made)


def minute(instant: datetime) -> str:
    """``2026-01-31 12:34``, UTC."""
    return f"{instant:%Y-%m-%d %H:%M}"


def dollars(amount: Decimal) -> str:
    """``$0.0123``: at least two decimals, no exponent."""
    plain = f"{amount:f}"
    whole, _, cents = plain.partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"
