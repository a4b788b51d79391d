"""What a detached sub-agent leaves in the conversation that started it, however its run ends."""

from datetime import datetime

from signoff.domain.run import Run, RunStatus
from signoff.domain.thread import Message, Role
from signoff.ports.store import Tx

PREVIEW_LENGTH = 140

STOPPED_TEXT = "I was stopped before this was done."
DIED_TEXT = "Something went wrong before this was done: check what happened before asking for it again."


def deliver(tx: Tx, run: Run, status: RunStatus, *, now: datetime) -> None:
    """Its messages, with calls and results, at the end of the conversation; a last word where it did not finish.

    What a failed run has said so far stays with it: an operator may drive it again, and it will read that.
    """
    thread_id = _conversation(tx, run)
    if thread_id is None:
        return
    if status is not RunStatus.FAILED:
        tx.adopt_messages(from_thread=run.thread_id, to_thread=thread_id)
    if status is not RunStatus.COMPLETED:
        _say(tx, run, thread_id, STOPPED_TEXT if status is RunStatus.CANCELLED else DIED_TEXT, now=now)
    said = [message for message in tx.messages_of(thread_id) if message.run_id == run.id]
    tx.change_thread(thread_id, updated_at=now, last_message_preview=preview(said[-1].content if said else ""))


def _conversation(tx: Tx, run: Run) -> str | None:
    """The thread that a person opens: whoever started the run may be a sub-agent with a thread of its own."""
    top = run
    while top.parent_id is not None:
        parent = tx.run(top.parent_id)
        if parent is None:
            return None  # pruned, and the way up with it
        top = parent
    return None if top is run else top.thread_id


def preview(text: str) -> str:
    """The beginning of a message on one line."""
    return " ".join(text.split())[:PREVIEW_LENGTH]


def _say(tx: Tx, run: Run, thread_id: str, text: str, *, now: datetime) -> None:
    # One a run: it may fail again after an operator's retry.
    message_id = f"{run.id}:unfinished"
    if tx.message(message_id) is not None:
        return
    tx.insert_message(
        Message(
            id=message_id,
            thread_id=thread_id,
            role=Role.ASSISTANT,
            content=text,
            run_id=run.id,
            agent_name=run.agent,
            created_at=now,
        )
    )
