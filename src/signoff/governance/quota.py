"""Limits per actor, counted from the ledger."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from signoff.domain.actor import Actor
from signoff.ports.quota import QuotaWindow
from signoff.ports.store import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorQuota:
    """So much a UTC day and a UTC month for each actor; None means unlimited.

    A limit is checked before a turn is admitted and again when each of its runs starts, so a turn that is
    under way may go over it.
    """

    daily_tokens: int | None = None
    daily_usd: Decimal | None = None
    monthly_tokens: int | None = None
    monthly_usd: Decimal | None = None

    def windows(self, tx: Tx, actor: Actor, now: datetime) -> list[QuotaWindow]:
        """The windows that have a limit."""
        today = now.astimezone(UTC).date()
        windows = []
        if self.daily_tokens is not None or self.daily_usd is not None:
            midnight = datetime(today.year, today.month, today.day, tzinfo=UTC)
            windows.append(
                self._window(
                    tx,
                    actor,
                    period="day",
                    from_day=today.isoformat(),
                    to_day=today.isoformat(),
                    limit_tokens=self.daily_tokens,
                    limit_usd=self.daily_usd,
                    resets_at=midnight + timedelta(days=1),
                )
            )
        if self.monthly_tokens is not None or self.monthly_usd is not None:
            first = today.replace(day=1)
            following = (first + timedelta(days=32)).replace(day=1)
            windows.append(
                self._window(
                    tx,
                    actor,
                    period="month",
                    from_day=first.isoformat(),
                    to_day=today.isoformat(),
                    limit_tokens=self.monthly_tokens,
                    limit_usd=self.monthly_usd,
                    resets_at=datetime(following.year, following.month, 1, tzinfo=UTC),
                )
            )
        return windows

    @staticmethod
    def _window(
        tx: Tx,
        actor: Actor,
        *,
        period: str,
        from_day: str,
        to_day: str,
        limit_tokens: int | None,
        limit_usd: Decimal | None,
        resets_at: datetime,
    ) -> QuotaWindow:
        spent = tx.spent(actor_id=actor.id, tenant=actor.tenant, from_day=from_day, to_day=to_day)
        return QuotaWindow(
            period=period,
            used_tokens=spent.tokens,
            limit_tokens=limit_tokens,
            used_usd=spent.cost_usd,
            limit_usd=limit_usd,
            resets_at=resets_at,
        )
