"""The order of open cards and its opaque cursor (`Tx.open_cards`), shared by all stores."""

import base64
import binascii
import json
from datetime import UTC, datetime
from typing import TypeAlias

from signoff.domain.call import Call
from signoff.errors import InvalidInput
from signoff.ports.store import CardOrder

#: What a card without a deadline is sorted by: behind every other one.
NO_DEADLINE = datetime(9999, 12, 31, tzinfo=UTC)

#: What an order sorts by: an instant, and the id of the card.
Place: TypeAlias = tuple[datetime, str]


def card_place(card: Call, order: CardOrder) -> Place:
    """Where `card` stands in `order`."""
    match order:
        case CardOrder.OLDEST:
            return card.created_at, card.id
        case CardOrder.DEADLINE:
            return card.expires_at or NO_DEADLINE, card.id


def card_cursor(card: Call, order: CardOrder) -> str:
    """The place behind `card`."""
    at, id_ = card_place(card, order)
    place = json.dumps([order.value, at.isoformat(), id_], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_card_cursor(cursor: str, order: CardOrder) -> Place:
    """The place (its instant in UTC) that a cursor stands behind. Raises `InvalidInput`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        of_order, at, id_ = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
        instant = datetime.fromisoformat(at).astimezone(UTC)
    except (ValueError, TypeError, binascii.Error, OverflowError) as error:
        raise InvalidInput("this cursor was not made here: start again without one", field="cursor") from error
    if of_order != order.value or not isinstance(id_, str):
        raise InvalidInput("this cursor was made for another order: start again without one", field="cursor")
    return instant, id_
