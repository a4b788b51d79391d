"""The world outside: what tools really do. It belongs to the test, so no restart of the application touches it."""

import asyncio
from dataclasses import dataclass

from signoff.domain.jsonvalue import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """Money that moved. `key` is the caller's idempotency key, if it gave one."""

    order: str
    cents: int
    key: str | None


class Bank:
    """Pays refunds; `payments` is what it really paid.

    A request under a key that was seen before moves nothing and gets the first receipt again. `requests` counts
    both. A request without a key always pays.
    """

    def __init__(self) -> None:
        self.payments: list[Payment] = []
        self.requests = 0
        self._receipts: dict[str, JsonObject] = {}

    def refund(self, order: str, cents: int, *, key: str | None = None) -> JsonObject:
        """Pay, and return the receipt."""
        self.requests += 1
        if key is not None and key in self._receipts:
            return self._receipts[key]
        self.payments.append(Payment(order=order, cents=cents, key=key))
        receipt: JsonObject = {"receipt": len(self.payments), "order": order, "cents": cents}
        if key is not None:
            self._receipts[key] = receipt
        return receipt

    def paid(self, key: str) -> JsonObject | None:
        """The receipt of the payment under this key, if there was one: what a probe asks."""
        return self._receipts.get(key)

    @property
    def orders(self) -> list[str]:
        """The orders that were refunded, in the order of payment."""
        return [payment.order for payment in self.payments]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail that was sent."""

    to: str
    text: str


class MailServer:
    """Sends mails. It knows no keys: whoever asks twice sends twice."""

    def __init__(self) -> None:
        self.sent: list[Mail] = []

    def send(self, to: str, text: str) -> JsonObject:
        """Send, and return a receipt."""
        self.sent.append(Mail(to=to, text=text))
        return {"mail": len(self.sent), "to": to}


class Gate:
    """A place where a tool or a model is held up until the test lets it go on. Use it from one event loop."""

    def __init__(self) -> None:
        self.arrivals = 0
        self._arrived = asyncio.Event()
        self._opened = asyncio.Event()

    async def passage(self) -> None:
        """Arrive, and wait until the gate is open."""
        self.arrivals += 1
        self._arrived.set()
        await self._opened.wait()

    async def reached(self) -> None:
        """Return once somebody has arrived."""
        await self._arrived.wait()

    def open(self) -> None:
        """Let everybody pass, now and later."""
        self._opened.set()
