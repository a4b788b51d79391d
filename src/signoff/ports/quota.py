"""How much an actor may spend."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from signoff.domain.actor import Actor
from signoff.ports.store import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindow:
    """One window and its state. `period` is "day" or "month" (UTC); a limit of None means unlimited."""

    period: str
    used_tokens: int
    limit_tokens: int | None
    used_usd: Decimal
    limit_usd: Decimal | None
    resets_at: datetime

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be started in this window."""
        return (self.limit_tokens is not None and self.used_tokens >= self.limit_tokens) or (
            self.limit_usd is not None and self.used_usd >= self.limit_usd
        )


class Quota(Protocol):
    """Reads the ledger, which has a row per model call whatever becomes of its run."""

    def windows(self, tx: Tx, actor: Actor, now: datetime) -> list[QuotaWindow]:
        """The actor's windows at `now`; an empty list means no quota."""
        ...
