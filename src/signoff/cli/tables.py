"""Tables for people: ids and names are never cut, they are there to be copied."""

from decimal import Decimal

from rich import box
from rich.table import Table


def table(*columns: str) -> Table:
    """A table that folds long cells instead of cutting them."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def dollars(amount: Decimal) -> str:
    """``$0.0123``: at least two decimals, no exponent."""
    plain = f"{amount:f}"
    whole, _, cents = plain.partition(".")
    return f"${whole}.{cents.rstrip('0').ljust(2, '0')}"
