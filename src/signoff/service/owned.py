"""Rows that belong to the actor: 404 for unknown, 403 for somebody else's, before any state is looked at."""

from signoff.domain.actor import Actor
from signoff.domain.run import Run
from signoff.domain.thread import Thread
from signoff.errors import Forbidden, NotFound
from signoff.ports.store import Tx


def owned_thread(tx: Tx, actor: Actor, thread_id: str) -> Thread:
    """The actor's thread. Raises `NotFound` (deleted ones too), `Forbidden`."""
    thread = tx.thread(thread_id)
    if thread is None or thread.deleted_at is not None:
        raise NotFound("thread", thread_id)
    if not actor.owns(actor_id=thread.actor_id, tenant=thread.tenant):
        raise Forbidden("this conversation belongs to somebody else")
    return thread


def owned_run(tx: Tx, actor: Actor, run_id: str) -> Run:
    """The actor's run. Raises `NotFound`, `Forbidden`."""
    run = tx.run(run_id)
    if run is None:
        raise NotFound("run", run_id)
    if not actor.owns(actor_id=run.actor_id, tenant=run.tenant):
        raise Forbidden("this run belongs to somebody else")
    return run
