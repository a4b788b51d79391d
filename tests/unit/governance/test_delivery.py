"""The outbox is emptied: at least once, by one of many, with backoff, and asleep in between."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import pytest

from signoff.adapters.stores.memory import MemoryStore
from signoff.adapters.stores.memory.tx import MemoryTx
from signoff.governance.delivery import ATTEMPT, HELD, SWEEP, OutboxDelivery
from signoff.ports.events import Event, EventName
from signoff.ports.notifier import Notification, Notifier
from signoff.ports.store import OutboxEntry
from signoff.testing.clock import START, FakeClock, FakeIds
from signoff.turn.events import Events

T = TypeVar("T")


class Receiver:
    """Takes notifications, unless the test has put a failure before."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.hold: asyncio.Event | None = None
        self.tried: asyncio.Queue[Notification] = asyncio.Queue()
        self.taken: list[Notification] = []

    async def notify(self, notification: Notification) -> None:
        self.tried.put_nowait(notification)
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(notification)

    async def one(self) -> Notification:
        """The next attempt."""
        async with asyncio.timeout(5):
            return await self.tried.get()


class Other(Receiver):
    """Another kind of receiver."""


class Store(MemoryStore):
    """Counts transactions, and tells of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []
        self.committed: asyncio.Queue[str] = asyncio.Queue()

    async def transact(self, label: str, work: Callable[[MemoryTx], T]) -> T:
        result = await super().transact(label, work)
        self.labels.append(label)
        self.committed.put_nowait(label)
        return result

    async def until(self, label: str) -> None:
        """Wait for a commit with this label."""
        async with asyncio.timeout(5):
            while await self.committed.get() != label:
                pass


class Office:
    """A store with an outbox, and processes that deliver from it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store()
        self.told: list[Event] = []

    @asynccontextmanager
    async def process(self, *notifiers: Notifier) -> AsyncIterator[Events]:
        events = Events(self.clock, [self.told.append])
        delivery = OutboxDelivery(self.store, notifiers, clock=self.clock, ids=FakeIds(), events=events)
        await delivery.open()
        try:
            yield events
        finally:
            await delivery.close()

    async def put(self, events: Events | None = None, id_: str = "call_1:requested") -> None:
        entry = OutboxEntry(
            id=id_,
            tenant="acme",
            call_id="call_1",
            kind="requested",
            payload={"toolName": "refund"},
            attempts=0,
            due_at=self.clock.now(),
        )

        def write(tx: MemoryTx) -> None:
            tx.put_outbox(entry)
            if events is not None:
                events.emit_on_commit(tx, EventName.APPROVAL_REQUESTED)

        await self.store.transact("card", write)

    async def undelivered(self) -> list[OutboxEntry]:
        return await self.store.read(lambda tx: tx.due_outbox(START + timedelta(days=9999), limit=99))


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = Office()
    await office.store.open()
    yield office
    await office.store.close()


async def test_a_commit_wakes_the_delivery(office: Office) -> None:
    receiver = Receiver()
    async with office.process(receiver) as events:
        await office.put(events)
        told = await receiver.one()
        await office.store.until("outbox:delivered")

    assert told == Notification(
        id="call_1:requested:Receiver",
        kind="requested",
        tenant="acme",
        call_id="call_1",
        payload={"toolName": "refund"},
    )
    assert await office.undelivered() == []
    assert office.told[-1].name is EventName.APPROVAL_REQUESTED


async def test_a_failure_is_tried_again_later_and_later(office: Office) -> None:
    receiver = Receiver()
    receiver.failures = [ConnectionError("no route"), ValueError("503"), TimeoutError()]
    async with office.process(receiver) as events:
        await office.put(events)
        ids = set()
        for seconds in (5, 10, 20):
            ids.add((await receiver.one()).id)
            await office.store.until("outbox:failed")
            [entry] = await office.undelivered()
            assert entry.due_at - office.clock.now() == pytest.approx(timedelta(seconds=seconds), abs=timedelta(0.001))
            office.clock.advance(timedelta(seconds=seconds))
        ids.add((await receiver.one()).id)
        await office.store.until("outbox:delivered")

    assert ids == {"call_1:requested:Receiver"}
    assert len(receiver.taken) == 1
    assert await office.undelivered() == []
    failures = [event.data for event in office.told if event.name is EventName.NOTIFICATION_FAILED]
    assert [(failure["attempt"], failure["error_type"]) for failure in failures] == [
        (1, "ConnectionError"),
        (2, "ValueError"),
        (3, "TimeoutError"),
    ]
    assert "no route" not in str(failures), "events hold names and counts, no texts"


async def test_waits_grow_to_an_hour_and_no_further(office: Office) -> None:
    receiver = Receiver()
    receiver.failures = [OSError()] * 40
    async with office.process(receiver) as events:
        await office.put(events)
        for _ in range(40):
            await receiver.one()
            await office.store.until("outbox:failed")
            office.clock.advance(timedelta(hours=1))
        await receiver.one()
        await office.store.until("outbox:delivered")
    assert len(receiver.taken) == 1


async def test_one_that_fails_does_not_repeat_the_other(office: Office) -> None:
    good, bad = Receiver(), Other()
    bad.failures = [OSError()]
    async with office.process(good, bad) as events:
        await office.put(events)
        await bad.one()
        await good.one()
        await office.store.until("outbox:failed")
        office.clock.advance(timedelta(seconds=5))
        await bad.one()
        await office.store.until("outbox:delivered")

    assert [told.id for told in good.taken] == ["call_1:requested:Receiver"]
    assert [told.id for told in bad.taken] == ["call_1:requested:Other"]


async def test_two_processes_do_not_both_deliver(office: Office) -> None:
    first, second = Receiver(), Receiver()
    async with office.process(first) as events, office.process(second) as others:
        for number in range(20):
            await office.put(events if number % 2 else others, f"call_{number}:requested")
        async with asyncio.timeout(5):
            while await office.undelivered():
                await office.store.committed.get()

    ids = [told.id for told in first.taken + second.taken]
    assert len(ids) == len(set(ids)) == 20


async def test_what_a_dead_process_held_is_delivered_by_another(office: Office) -> None:
    dying, living = Receiver(), Receiver()
    dying.hold = asyncio.Event()
    async with office.process(dying) as events:
        await office.put(events)
        await dying.one()

    async with office.process(living):
        await office.store.until("outbox:take")
        assert living.tried.empty()
        office.clock.advance(HELD)
        await living.one()
        await office.store.until("outbox:delivered")
    assert dying.taken == []
    assert len(living.taken) == 1


async def test_what_was_left_behind_is_delivered_at_start(office: Office) -> None:
    await office.put()
    receiver = Receiver()
    async with office.process(receiver):
        await receiver.one()
        await office.store.until("outbox:delivered")
    assert len(receiver.taken) == 1


async def test_what_another_process_left_without_a_word_is_found(office: Office) -> None:
    receiver = Receiver()
    async with office.process(receiver):
        await office.store.until("outbox:take")
        await office.put()  # the process that committed it died before it told anybody
        office.clock.advance(SWEEP)
        await receiver.one()
        await office.store.until("outbox:delivered")


async def test_a_notifier_that_hangs_is_given_up_and_holds_up_nobody(office: Office) -> None:
    hanging, quick = Receiver(), Other()
    hanging.hold = asyncio.Event()
    async with office.process(hanging, quick) as events:
        await office.put(events)
        await hanging.one()
        await quick.one()
        await office.store.until("outbox:delivered")
        office.clock.advance(ATTEMPT)
        await office.store.until("outbox:failed")
    [entry] = await office.undelivered()
    assert entry.last_error == "LimitPassed: not done after 30 s"


async def test_nothing_to_do_is_nothing_done(office: Office) -> None:
    """A failed entry does not make it poll: between two due times nothing reads the database but the sweep."""
    receiver = Receiver()
    receiver.failures = [OSError()] * 20
    async with office.process(receiver) as events:
        await office.put(events)
        for _ in range(8):
            await receiver.one()
            await office.store.until("outbox:failed")
            office.clock.advance(timedelta(hours=1))
        await receiver.one()
        await office.store.until("outbox:failed")
        await office.store.until("outbox:take")  # after the attempt's end
        before = len(office.store.labels)
        office.clock.advance(SWEEP - timedelta(seconds=1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(office.store.labels) == before


async def test_it_starts_and_ends_without_leaving_a_task(office: Office) -> None:
    before = asyncio.all_tasks()
    receiver = Receiver()
    receiver.hold = asyncio.Event()
    async with office.process(receiver) as events:
        await office.put(events)
        await receiver.one()
    assert asyncio.all_tasks() == before


async def test_notifiers_of_one_class_are_told_apart(office: Office) -> None:
    one, two = Receiver(), Receiver()
    async with office.process(one, two) as events:
        await office.put(events)
        assert (await one.one()).id == "call_1:requested:Receiver"
        assert (await two.one()).id == "call_1:requested:Receiver-2"


async def test_an_entry_for_a_notifier_that_is_not_here_waits_for_a_process_that_has_it(office: Office) -> None:
    """Two versions of an application run side by side, or one was rolled back."""
    one, other = Receiver(), Other()
    other.failures = [OSError()]
    async with office.process(one, other) as events:
        await office.put(events)
        await other.one()
        await office.store.until("outbox:failed")
    async with office.process(Receiver()):
        office.clock.advance(timedelta(seconds=5))
        await office.store.until("outbox:failed")
    [entry] = await office.undelivered()
    assert entry.last_error == "LookupError: there is no notifier 'Other' in this process"

    async with office.process(other):
        office.clock.advance(timedelta(seconds=10))
        await other.one()
        await office.store.until("outbox:delivered")
    assert len(other.taken) == 1
