"""Streamed text belongs to the attempt that the run goes by, whoever else still speaks."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from signoff import Actor, Agent, Signoff
from signoff.domain import frame
from signoff.domain.run import Run, RunStatus
from signoff.domain.thread import Thread
from signoff.ports.store import Tx
from signoff.testing.clock import START, FakeClock, FakeIds
from signoff.testing.scripted import ScriptedModel
from signoff.turn.input import TurnInput
from signoff.turn.llm import StreamWriter

TURN = TurnInput(run_id="r", thread_id="t", stream_id="r", actor=Actor(id="ana"), agent="desk")


def insert_rows(tx: Tx) -> None:
    tx.insert_thread(Thread(id="t", actor_id="ana", created_at=START, updated_at=START))
    tx.insert_run(
        Run(
            id="r",
            thread_id="t",
            actor_id="ana",
            agent="desk",
            stream_id="r",
            durable=True,
            input=TURN.to_json(),
            created_at=START,
        )
    )


@pytest.fixture
async def app() -> AsyncIterator[Signoff]:
    app = Signoff(
        agents=[Agent("desk", instructions="Help.")],
        model=ScriptedModel(["Hi."]),
        database="memory://",
        durable=False,
        clock=FakeClock(),
        ids=FakeIds(),
    )
    async with app.running():
        await app.store.transact("rows", insert_rows)
        yield app


class Driver:
    """Which of the attempts is current."""

    current = 1

    def writer(self, app: Signoff, attempt: int) -> StreamWriter:
        return StreamWriter(app.deps.turn, TURN, step=0, is_current=lambda _tx: self.current == attempt, closes=None)


async def shown(app: Signoff) -> list[object]:
    numbered = await app.store.read(lambda tx: tx.frames("r", after=0, limit=100))
    return [each.frame.get("text", each.frame["kind"]) for each in numbered]


async def test_a_worker_that_was_overtaken_does_not_speak_any_more(app: Signoff) -> None:
    driver = Driver()
    overtaken, current = driver.writer(app, 1), driver.writer(app, 2)
    overtaken.write(frame.text("old "))
    driver.current = 2
    current.write(frame.text("new "))
    overtaken.write(frame.text("older"))
    overtaken.flush()
    current.write(frame.text("newer"))
    current.flush()

    assert await shown(app) == ["step-start", "new ", "newer"]


async def test_a_worker_that_was_overtaken_before_its_first_word_does_not_begin(app: Signoff) -> None:
    driver = Driver()
    overtaken, current = driver.writer(app, 1), driver.writer(app, 2)
    driver.current = 2
    current.write(frame.text("new "))
    overtaken.write(frame.text("old "))
    current.write(frame.text("newer"))
    current.flush()

    assert await shown(app) == ["step-start", "new ", "newer"]


async def test_a_worker_that_was_overtaken_before_its_first_word_does_not_begin_once_the_step_is_over(
    app: Signoff,
) -> None:
    driver = Driver()
    overtaken, current = driver.writer(app, 1), driver.writer(app, 2)
    driver.current = 2
    current.write(frame.text("new"))
    current.flush()
    await app.store.transact(
        "persist:step:0", lambda tx: tx.add_to_run("r", steps=1, input_tokens=1, output_tokens=1, cost_usd=Decimal(0))
    )
    overtaken.write(frame.text("old "))
    overtaken.flush()

    assert await shown(app) == ["step-start", "new"]


async def test_nothing_is_said_after_the_end(app: Signoff) -> None:
    speaking = Driver().writer(app, 1)
    speaking.write(frame.text("one "))
    await app.store.transact("end", lambda tx: tx.settle_run("r", status=RunStatus.CANCELLED, ended_at=START))
    speaking.write(frame.text("two"))
    speaking.flush()

    assert await shown(app) == ["step-start", "one "]


async def test_a_step_whose_first_words_got_lost_begins_with_the_next(
    app: Signoff, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking = Driver().writer(app, 1)
    with monkeypatch.context() as outage:
        outage.setattr(app.store, "transact_soon", lambda _label, _work: None)
        speaking.write(frame.text("one "))
    speaking.write(frame.text("two"))
    speaking.flush()

    assert await shown(app) == ["step-start", "two"]
