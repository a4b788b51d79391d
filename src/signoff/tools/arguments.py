"""The arguments of a call as a model sends them: JSON text, not to be trusted."""

import json

from signoff.domain.jsonvalue import Json, JsonObject, normalise
from signoff.errors import InvalidInput, NotJson, TooLarge

ARGUMENTS_BYTES_MAX = 256 * 1024


class InvalidArguments(InvalidInput):
    """The call's arguments do not fit the tool. The text is written for the model: path and reason."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="arguments", code="invalid_arguments")


def parse_arguments(sent: Json) -> JsonObject:
    """The arguments as an object. No text at all means no arguments.

    Args:
        sent: JSON text (what providers stream), or a value that was parsed already.

    Raises:
        InvalidArguments: not strict JSON, not an object, nested too deep, or over 256 KiB.
    """
    value = _loads(sent) if isinstance(sent, str) else sent
    if not isinstance(value, dict):
        raise InvalidArguments(f"arguments must be a JSON object, not {_kind_of(value)}")
    try:
        normalised = normalise(value, what="the arguments", bytes_max=ARGUMENTS_BYTES_MAX)
    except (NotJson, TooLarge, RecursionError, ValueError) as error:
        raise InvalidArguments(f"arguments cannot be used: {error}") from error
    assert isinstance(normalised, dict)
    return normalised


def _loads(text: str) -> Json:
    if not text.strip():
        return {}
    # Characters are a lower bound of bytes; `normalise` measures exactly. This spares parsing megabytes.
    if len(text) > ARGUMENTS_BYTES_MAX:
        raise InvalidArguments(f"arguments are too long: at most {ARGUMENTS_BYTES_MAX} bytes are allowed")
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidArguments("arguments are nested too deep") from error
    except ValueError as error:
        raise InvalidArguments(f"arguments are not valid JSON: {error}") from error
    return value


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


def _kind_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "an array"
