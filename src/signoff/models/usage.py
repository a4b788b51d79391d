"""Tokens as the wire knows them."""

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Usage

_OPTIONAL = {
    "cacheReadTokens": "cache_read_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}


def to_wire(usage: Usage) -> JsonObject:
    """The usage object of a `step-finish` frame and of a stored message (WIRE sections 4 and 6.3).

    Input and output are always there; the other counts only where they are not zero.
    """
    wire: JsonObject = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
    for key, attribute in _OPTIONAL.items():
        if count := getattr(usage, attribute):
            wire[key] = count
    return wire


def from_wire(wire: JsonObject) -> Usage:
    """The inverse of `to_wire`. Keys it does not know are left alone: `costUsd` may sit beside the counts."""
    return Usage(
        input_tokens=_count(wire.get("inputTokens")),
        output_tokens=_count(wire.get("outputTokens")),
        **{attribute: _count(wire.get(key)) for key, attribute in _OPTIONAL.items()},
    )


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0
