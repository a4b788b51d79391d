"""What a model call costs, by the public price list of genai-prices."""

from contextlib import suppress
from decimal import Decimal
from typing import Protocol


class Billable(Protocol):
    """Token counts to price. Cache reads and writes are part of `input_tokens`.

    Both `domain.run.Usage` and the usage objects of pydantic-ai are billable; the latter carry finer counts
    (audio, one-hour cache writes) that the price list knows too.
    """

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...
    @property
    def cache_write_tokens(self) -> int: ...


def cost_usd(usage: Billable, *, model: str, provider: str | None, url: str | None = None) -> Decimal | None:
    """The price of one model call in US dollars, or None where no price is known.

    Args:
        usage: the tokens of one call; a sum over calls would miss prices that depend on the size of one prompt.
        model: as the provider calls it, e.g. ``"gpt-5-mini-2025-08-07"``.
        provider: e.g. ``"openai"``. None prices nothing by name: a private server may call its model anything.
        url: where the provider was reached. It says best who sends the bill, so it is looked up first.
    """
    # Imported late: the price list takes a fifth of a second to load, and a scripted model needs none.
    from genai_prices import Usage, calc_price

    priced = Usage.from_raw(usage)
    # Not in the list, or counts it cannot price (more cached tokens than tokens): unknown, not zero.
    if url:
        with suppress(LookupError, ValueError):
            return calc_price(priced, model, provider_api_url=url).total_price
    if provider:
        with suppress(LookupError, ValueError):
            return calc_price(priced, model, provider_id=provider).total_price
    return None
