"""US dollars as all stores keep them."""

from decimal import Decimal

_PICO = Decimal(1).scaleb(-12)


def exact(money: Decimal) -> Decimal:
    """Rounded (half to even) to a picodollar, which is finer than any price per token."""
    return money.quantize(_PICO)
