from decimal import Decimal

import pytest

from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Usage
from signoff.models import usage
from signoff.models.pricing import cost_usd


@pytest.mark.parametrize(
    ("counted", "wire"),
    [
        (Usage(), {"inputTokens": 0, "outputTokens": 0}),
        (
            Usage(input_tokens=3, output_tokens=2, reasoning_tokens=1),
            {"inputTokens": 3, "outputTokens": 2, "reasoningTokens": 1},
        ),
        (
            Usage(input_tokens=9, output_tokens=2, cache_read_tokens=5, cache_write_tokens=4),
            {"inputTokens": 9, "outputTokens": 2, "cacheReadTokens": 5, "cacheWriteTokens": 4},
        ),
    ],
)
def test_counts_that_are_zero_are_left_out(counted: Usage, wire: JsonObject) -> None:
    assert usage.to_wire(counted) == wire
    assert usage.from_wire({**wire, "costUsd": 0.5}) == counted


MILLION = Usage(input_tokens=1_000_000, output_tokens=0)


def test_the_address_says_best_who_sends_the_bill() -> None:
    """The same model through a reseller has the reseller's price, whatever the provider calls itself."""
    direct = cost_usd(MILLION, model="gpt-4o", provider="openai")
    resold = cost_usd(MILLION, model="gpt-4o", provider="nobody", url="https://api.openai.com/v1")

    assert direct == resold == Decimal("2.5")


@pytest.mark.parametrize(
    ("model", "provider", "url"),
    [
        ("gpt-4o", None, None),
        ("gpt-4o", "self-hosted", "http://127.0.0.1:8000/v1"),
        ("no-such-model", "openai", "https://api.openai.com/v1"),
    ],
)
def test_no_price_is_unknown_not_zero(model: str, provider: str | None, url: str | None) -> None:
    assert cost_usd(MILLION, model=model, provider=provider, url=url) is None


def test_counts_that_contradict_each_other_have_no_price() -> None:
    more_cached_than_read = Usage(input_tokens=1, cache_read_tokens=2)

    assert cost_usd(more_cached_than_read, model="gpt-4o", provider="openai") is None
