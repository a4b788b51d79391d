"""Parameters of paths and queries, as every route declares them."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Query

from signoff.errors import InvalidInput
from signoff.http.bodies import ID_CHARS_MAX, ID_PATTERN
from signoff.service.read import PAGE_MAX

# An id that could not be one of ours is answered as an unknown one (see `problems.ProblemRoute`).
ThreadId = Annotated[str, Path(max_length=ID_CHARS_MAX, pattern=ID_PATTERN)]
RunId = Annotated[str, Path(max_length=ID_CHARS_MAX, pattern=ID_PATTERN)]
MessageId = Annotated[str, Path(max_length=ID_CHARS_MAX, pattern=ID_PATTERN)]

NameFilter = Annotated[str | None, Query(max_length=ID_CHARS_MAX, pattern=ID_PATTERN)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str | None, Query(max_length=1024, pattern=ID_PATTERN, description="`nextCursor` of the last page")]

#: The largest integer that every JSON reader keeps exactly; stream numbers stay below it.
_SAFE_INTEGER_DIGITS = 15


def frame_number(text: str, *, field: str) -> int:
    """A reader's cursor, 0 or the number of the last frame it has seen.

    Raises:
        InvalidInput: not a whole number, or negative.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _SAFE_INTEGER_DIGITS):
        raise InvalidInput(f"{field} must be the number of a frame, or 0", field=field)
    return int(text)


def instant_of(text: str, *, field: str) -> datetime:
    """An ISO-8601 instant with an offset. Raises `InvalidInput`."""
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        value = None
    if value is None or value.utcoffset() is None:
        raise InvalidInput(f"{field} must be an ISO-8601 instant with an offset, as 2026-01-31T12:00:00Z", field=field)
    return value
