"""Empties the outbox: every notification reaches every notifier at least once, however often one of them fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from signoff.ports.clock import Clock
from signoff.ports.deadline import run_within
from signoff.ports.events import Event, EventBus, EventName
from signoff.ports.ids import Ids
from signoff.ports.notifier import Notification, Notifier
from signoff.ports.store import OutboxEntry, Store, Tx

_log = logging.getLogger("signoff.delivery")

#: How long one attempt may take, and how long an entry is held for it: what outlives its process is free again then.
ATTEMPT = timedelta(seconds=30)
HELD = timedelta(seconds=90)
BACKOFF = timedelta(seconds=5)
BACKOFF_MAX = timedelta(hours=1)
#: Entries whose process died before it delivered them are found by whoever looks next.
SWEEP = timedelta(minutes=1)
AT_ONCE = 16
_EVER = datetime.max.replace(tzinfo=UTC)
_ERROR_CHARS_MAX = 300

#: Events that are told behind a commit which may have left something in the outbox.
_CAUSES = frozenset(
    {
        EventName.APPROVAL_REQUESTED,
        EventName.APPROVAL_ESCALATED,
        EventName.APPROVAL_SETTLED,
        EventName.RUN_FAILED,
        EventName.RUN_FINISHED,
    }
)

Addition: TypeAlias = Callable[[Notification], Awaitable[Notification]]
"""What a notification gets right before it leaves, e.g. decision links that should not lie in the database."""


class OutboxDelivery:
    """Delivers what is due, in this process and beside others on the same database.

    An entry is held by moving its due time in the transaction that takes it, so that two processes do not both
    deliver it, and one that dies holds it for `HELD` at most. A failure is tried again after 5 s, 10 s, … up to an
    hour, for as long as it takes, and told as an event each time. It sleeps until a commit or a due time wakes it.
    """

    def __init__(
        self,
        store: Store,
        notifiers: Sequence[Notifier],
        *,
        clock: Clock,
        ids: Ids,
        events: EventBus,
        addition: Addition | None = None,
    ) -> None:
        """A notifier is known in the outbox by its class and its place among those of its class."""
        self._store = store
        self._notifiers = _named(notifiers)
        self._clock = clock
        self._ids = ids
        self._events = events
        self._addition = addition
        self._woken = asyncio.Event()
        self._attempts: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        events.subscribe(self._heard)

    async def open(self) -> None:
        """Begin to deliver; what an earlier process left comes first."""
        self._loop = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop. Attempts under way are given up and made again, by whoever looks after `HELD`."""
        tasks = [*self._attempts, *([] if self._loop is None else [self._loop])]
        self._loop = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def wake(self) -> None:
        """Look at the outbox soon."""
        self._woken.set()

    def _heard(self, event: Event) -> None:
        if event.name in _CAUSES:
            self.wake()

    # --- one look after the other -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            due = await self._look()
            timer = self._clock.call_at(min(due, self._clock.now() + SWEEP), self._woken.set)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()

    async def _look(self) -> datetime:
        """Start an attempt at each entry that is due, as far as there is room; returns when the next one is."""
        room = AT_ONCE - len(self._attempts)
        if room == 0:
            return _EVER  # the end of an attempt wakes us
        try:
            taken, due = await self._store.transact("outbox:take", lambda tx: self._take(tx, room))
        except Exception:  # noqa: BLE001  # whatever the store has: the next look may find it well
            _log.exception("the outbox could not be read")
            return _EVER
        for entry in taken:
            attempt = asyncio.create_task(self._deliver(entry))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._ended)
        return due

    def _ended(self, attempt: "asyncio.Task[None]") -> None:
        self._attempts.discard(attempt)
        self.wake()

    def _take(self, tx: Tx, room: int) -> tuple[list[OutboxEntry], datetime]:
        now = self._clock.now()
        for entry in tx.due_outbox(now, limit=room):
            if entry.notifier is None:
                self._hand_out(tx, entry, now)
        taken = []
        for entry in tx.due_outbox(now, limit=room):
            held = replace(entry, due_at=now + HELD)
            if entry.notifier is not None and tx.change_outbox(held, expect_due_at=entry.due_at):
                taken.append(held)
        following = tx.due_outbox(_EVER, limit=1)
        return taken, following[0].due_at if following else _EVER

    def _hand_out(self, tx: Tx, entry: OutboxEntry, now: datetime) -> None:
        """An entry of its own for each notifier: one that works is not told again because another one fails."""
        if tx.change_outbox(replace(entry, delivered_at=now), expect_due_at=entry.due_at):
            for name in self._notifiers:
                tx.put_outbox(replace(entry, id=f"{entry.id}:{name}", notifier=name))

    # --- one attempt --------------------------------------------------------------------------------------------

    async def _deliver(self, entry: OutboxEntry) -> None:
        attempts = entry.attempts + 1
        try:
            await run_within(self._notify(entry), limit=ATTEMPT, clock=self._clock)
        except Exception as error:  # noqa: BLE001  # notifiers are users' code, and networks fail in every way
            wait = self._wait(attempts)
            text = f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]
            after = replace(entry, attempts=attempts, last_error=text, due_at=self._clock.now() + wait)
            self._tell(entry, attempts, error, wait)
        else:
            after = replace(entry, attempts=attempts, last_error=None, delivered_at=self._clock.now())
        try:
            await self._store.transact(
                "outbox:delivered" if after.delivered_at else "outbox:failed",
                lambda tx: tx.change_outbox(after, expect_due_at=entry.due_at),
            )
        except Exception:  # noqa: BLE001  # it stays held, and is delivered once more: "at least once"
            _log.exception("what became of notification %s could not be stored", entry.id)

    async def _notify(self, entry: OutboxEntry) -> None:
        notifier = self._notifiers.get(entry.notifier or "")
        if notifier is None:
            raise LookupError(f"there is no notifier {entry.notifier!r} in this process")
        told = Notification(
            id=entry.id, kind=entry.kind, tenant=entry.tenant, call_id=entry.call_id, payload=entry.payload
        )
        await notifier.notify(told if self._addition is None else await self._addition(told))

    def _wait(self, attempts: int) -> timedelta:
        whole = min(BACKOFF * (1 << min(attempts - 1, 20)), BACKOFF_MAX)
        return whole * (0.5 + self._ids.jitter() / 2)

    def _tell(self, entry: OutboxEntry, attempts: int, error: Exception, wait: timedelta) -> None:
        _log.warning("notification %s failed (attempt %d): %s", entry.id, attempts, type(error).__name__)
        self._events.emit(
            EventName.NOTIFICATION_FAILED,
            call_id=entry.call_id,
            kind=entry.kind,
            notifier=entry.notifier,
            attempt=attempts,
            error_type=type(error).__name__,
            retry_ms=round(wait.total_seconds() * 1000),
        )


def _named(notifiers: Sequence[Notifier]) -> dict[str, Notifier]:
    named: dict[str, Notifier] = {}
    for notifier in notifiers:
        name = type(notifier).__name__
        number = sum(1 for other in named.values() if type(other).__name__ == name)
        named[name if number == 0 else f"{name}-{number + 1}"] = notifier
    return named
