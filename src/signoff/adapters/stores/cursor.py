"""The opaque cursor of `Tx.open_cards`, shared by all stores."""

import base64
import binascii
import json
from datetime import UTC, datetime

from signoff.domain.call import Call
from signoff.errors import InvalidInput


def card_cursor(card: Call) -> str:
    """The place behind `card` in `(created_at, id)` order."""
    place = json.dumps([card.created_at.isoformat(), card.id], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_card_cursor(cursor: str) -> tuple[datetime, str]:
    """The instant (UTC) and id that a cursor stands behind. Raises `InvalidInput`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, id_ = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
        instant = datetime.fromisoformat(at).astimezone(UTC)
    except (ValueError, TypeError, binascii.Error, OverflowError) as error:
        raise InvalidInput("this cursor was not made here: start again without one", field="cursor") from error
    if not isinstance(id_, str):
        raise InvalidInput("this cursor was not made here: start again without one", field="cursor")
    return instant, id_
