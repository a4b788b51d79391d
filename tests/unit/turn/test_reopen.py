"""An operator's retry finds the cards of a failed run as they were."""

from dataclasses import replace

import pytest

from signoff import Agent, Signoff
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import JsonObject
from signoff.domain.run import Run
from signoff.domain.thread import Thread
from signoff.ports.store import Tx
from signoff.testing.clock import START, FakeClock, FakeIds
from signoff.testing.scripted import ScriptedModel
from signoff.turn import settle

CALL = Call(
    id="c",
    run_id="r",
    thread_id="t",
    message_id="m",
    step=0,
    index=0,
    name="refund",
    kind=ToolKind.ACTION,
    arguments={},
    status=CallStatus.PENDING,
    actor_id="ana",
    agent_name="desk",
    created_at=START,
    approver="requester",
)
APPROVED = replace(CALL, status=CallStatus.APPROVED, decided_by="ana", decided_via="web", decided_at=START)
DOUBT: JsonObject = {"startedAt": "2026-01-01T00:00:00.000Z", "attempt": 1, "round": 1}


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        APPROVED,
        replace(APPROVED, status=CallStatus.IN_DOUBT, in_doubt=DOUBT),
        replace(CALL, approver=None, status=CallStatus.IN_DOUBT, in_doubt=DOUBT),
        replace(APPROVED, in_doubt={**DOUBT, "resolution": "approved", "resolvedBy": "bo"}),
    ],
    ids=["open", "approved", "in doubt", "in doubt without an approval", "resolved"],
)
async def test_a_card_is_as_it_was_before_the_run_failed(call: Call) -> None:
    app = Signoff(
        agents=[Agent("desk", instructions="Help.")],
        model=ScriptedModel(["Hi."]),
        database="memory://",
        durable=False,
        clock=FakeClock(),
        ids=FakeIds(),
    )
    run = Run(id="r", thread_id="t", actor_id="ana", agent="desk", stream_id="r", input={}, created_at=START)

    def work(tx: Tx) -> None:
        tx.insert_thread(Thread(id="t", actor_id="ana", created_at=START, updated_at=START))
        tx.insert_run(run)
        tx.insert_call(call)
        settle.fail(tx, run, deps=app.deps.turn, code="run_failed", text="no")
        failed = tx.run("r")
        assert failed is not None
        assert settle.reopen(tx, failed)

    async with app.running():
        await app.store.transact("fail and retry", work)
        assert await app.store.read(lambda tx: tx.call("c")) == call
