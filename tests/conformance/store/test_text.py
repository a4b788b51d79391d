"""Text that databases choke on comes back as it went in (C25)."""

from dataclasses import replace
from typing import Any

import pytest

from signoff.domain.approval import Remembered
from signoff.domain.audit import AuditKind
from signoff.ports.store import IdempotencyRecord, Store, Tx
from tests.conformance.store.rows import a_call, a_message, a_run, a_thread, a_vote, an_outbox_entry, at, insert

ODD = [
    "a\x00b",
    "\x00",
    "lone \ud800 and \udfff",
    "\x10",
    "\x100000",
    "\x10\x00\x1000e9",
    "\U0001f600 é \u202e \ufeff \uffff",
    "'; DROP TABLE threads; -- %s %(x)s ? :name \\ \"",
    "\r\n\t\x01\x7f\x85\u2028",
    "",
]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
async def test_odd_text_comes_back_from_every_kind_of_row(store: Store, odd: str) -> None:
    thread = a_thread(odd, title=odd, last_message_preview=odd, actor_id=odd, tenant=odd)
    message = a_message("message_1", thread_id=odd, content=odd, reasoning=odd, metadata={odd: odd})
    run = a_run(odd, error=odd, input={"message": odd}, actor_roles=(odd,), tenant=odd)
    output: Any = {"text": [odd, {odd: None}]}
    call = a_call(odd, arguments={"q": odd}, output=output, decision_reason=odd, widened=(odd,), run_id=odd)
    key = IdempotencyRecord(actor_id=odd, tenant=odd, key=odd, body_digest="d", run_id=odd, thread_id=odd, at=at(0))
    remembered = Remembered(thread_id=odd, tool=odd, by=odd, approver=odd, at=at(0))

    await insert(store, thread, message, run, call, a_vote(odd, odd))

    def write(tx: Tx) -> int:
        tx.put_key(key)
        tx.remember(remembered)
        tx.put_outbox(an_outbox_entry(odd, payload={"text": odd}, last_error=odd))
        tx.append_audit(
            tenant=odd, at=at(0), kind=AuditKind.REJECTED, run_id=odd, call_id=odd, actor_id=odd, data={odd: odd}
        )
        return tx.emit(odd, [{"kind": "text", "text": odd}])

    await store.transact("write", write)

    def check(tx: Tx) -> None:
        assert tx.thread(odd) == thread
        assert tx.threads_of(actor_id=odd, tenant=odd) == [thread]
        (stored,) = tx.messages_of(odd)
        assert stored == replace(message, seq=stored.seq)
        assert tx.run(odd) == run
        assert tx.call(odd) == call
        assert tx.calls_of_run(odd) == [call]
        assert tx.votes_of(odd) == [a_vote(odd, odd)]
        assert tx.key(actor_id=odd, tenant=odd, key=odd) == key
        assert tx.remembered(thread_id=odd, tool=odd) == remembered
        assert tx.due_outbox(at(99), limit=9) == [an_outbox_entry(odd, payload={"text": odd}, last_error=odd)]
        (entry,) = tx.audit(tenant=odd, call_id=odd)
        assert (entry.actor_id, entry.data) == (odd, {odd: odd})
        (numbered,) = tx.frames(odd, after=0, limit=9)
        assert numbered.frame == {"kind": "text", "text": odd}

    await store.read(check)


async def test_long_ids_are_kept_whole(store: Store) -> None:
    long = "\U0001f600" * 255

    await insert(store, a_thread(long, actor_id=long, tenant=long), a_run(long), a_call(long, run_id=long))
    await store.transact("emit", lambda tx: tx.emit(long, [{"kind": "text", "text": "a"}]))

    assert await store.read(lambda tx: tx.thread(long)) == a_thread(long, actor_id=long, tenant=long)
    assert await store.read(lambda tx: tx.calls_of_run(long)) == [a_call(long, run_id=long)]
