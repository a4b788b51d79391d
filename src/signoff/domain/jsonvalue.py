"""JSON as journal, store and wire know it: one codec, so that a first run and a replay see the same value."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from signoff.errors import NotJson, TooLarge

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

DEPTH_MAX = 64


def normalise(value: object, *, what: str, bytes_max: int) -> Json:
    """The value as a replay would read it back.

    Tuples become lists, mapping keys must be strings, lone surrogates become U+FFFD (no UTF-8 text can hold
    them). NaN, infinities, cycles, and anything that is not JSON are refused.

    Args:
        value: what a tool, a model or a policy returned.
        what: names the value in the error, e.g. ``"output of tool 'refund'"``.
        bytes_max: bound on the encoded size in bytes.

    Raises:
        NotJson: the value holds something JSON cannot say.
        TooLarge: the encoded value is over the bound.
    """
    plain = _plain(value, what=what, depth=0)
    _bounded(plain, what=what, bytes_max=bytes_max)
    return plain


def normalised_text(value: object, *, what: str, bytes_max: int) -> str:
    """As `normalise`, encoded: what is stored anyway has been measured anyway."""
    return _bounded(_plain(value, what=what, depth=0), what=what, bytes_max=bytes_max)


def _bounded(plain: Json, *, what: str, bytes_max: int) -> str:
    text = encode(plain)
    if len(text) > bytes_max:
        raise TooLarge(what=what, size=len(text), size_max=bytes_max)
    return text


# `json.dumps` with options makes an encoder at each call: half of its time for the small values that we have.
_encoder = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def encode(value: Json) -> str:
    """Compact JSON, ASCII only: NUL and every other odd character is escaped, so any text column can hold it."""
    return _encoder.encode(value)


def decode(text: str) -> Json:
    """The inverse of `encode`."""
    value: Json = json.loads(text)
    return value


def canonical(value: Json) -> str:
    """One text per value: sorted keys, no spaces. What digests and idempotency checks compare."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False, sort_keys=True)


def digest(value: Json) -> str:
    """SHA-256 of the canonical text, hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def as_object(value: Json, *, what: str) -> JsonObject:
    """`value` if it is a JSON object; raises `NotJson` otherwise."""
    if not isinstance(value, dict):
        raise NotJson(what=what, reason="expected an object")
    return value


def clean_text(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, so that it can be encoded as UTF-8."""
    if text.isascii():
        return text
    # UTF-16 joins the halves of a pair; only what is left alone is replaced, by one character each.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if _has_surrogate(text) else text


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _plain(value: object, *, what: str, depth: int) -> Json:
    if depth > DEPTH_MAX:
        raise NotJson(what=what, reason=f"nested deeper than {DEPTH_MAX} levels, or it contains itself")
    # Nearly everything is exactly one of these, and asking for an abstract class takes ten times as long.
    kind = type(value)
    if kind is str:
        return clean_text(value)  # type: ignore[arg-type]
    if kind is dict:
        return {_key(key, what=what): _plain(item, what=what, depth=depth + 1) for key, item in value.items()}  # type: ignore[attr-defined]
    match value:
        case None | bool() | int():
            return value
        case float():
            if not math.isfinite(value):
                raise NotJson(what=what, reason=f"{value} is not a JSON number")
            return value
        case str():
            return clean_text(value)
        case Mapping():
            return {_key(key, what=what): _plain(item, what=what, depth=depth + 1) for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(item, what=what, depth=depth + 1) for item in value]
        case _:
            raise NotJson(what=what, reason=f"a {type(value).__name__} is not JSON")


def _key(key: object, *, what: str) -> str:
    if not isinstance(key, str):
        raise NotJson(what=what, reason=f"the key {key!r} is not a string")
    return clean_text(key)
