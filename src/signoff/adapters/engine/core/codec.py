"""Values and errors as the journal keeps them.

What a first execution hands to the body went through here as well, so it equals what a replay reads.
"""

from signoff.domain.jsonvalue import Json, JsonObject, clean_text, decode, normalised_text
from signoff.errors import StepFailed

#: An error's text is for people; a longer one (a whole page of HTML, say) is cut, so that it always fits an entry.
MESSAGE_CHARACTERS_MAX = 4_000

NULL = "null"


def store_value(name: str, value: object, *, bytes_max: int) -> str:
    """The JSON text of a checkpoint's value.

    Raises:
        NotJson, TooLarge: naming the checkpoint.
    """
    return normalised_text(value, what=f"checkpoint {name!r}", bytes_max=bytes_max)


def load_value(text: str) -> Json:
    """The inverse of `store_value`."""
    return decode(text)


def failure_of(error: BaseException) -> JsonObject:
    """An error as a journal body. A `StepFailed` keeps the original's type and code."""
    body: JsonObject
    if isinstance(error, StepFailed):
        body = {"type": error.error_type, "message": message_of(error)}
        code: object = error.error_code
    else:
        body = {"type": type(error).__name__, "message": message_of(error)}
        code = getattr(error, "code", None)
    if isinstance(code, str):
        body["code"] = clean_text(code)
    return body


def message_of(error: BaseException) -> str:
    """The error's text, or the name of its class if it has none; bounded."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # a broken __str__ must not hide that the step failed
        text = ""
    text = clean_text(text or type(error).__name__)
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else text[: MESSAGE_CHARACTERS_MAX - 1] + "…"


def doubt_of(*, started_at: str, attempt: int) -> JsonObject:
    """The body of an outcome that nobody knows."""
    return {"started_at": started_at, "attempt": attempt}
