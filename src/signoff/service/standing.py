"""Who may decide a card, and whether it can be decided at all: asked before a decision, and before showing one."""

from dataclasses import replace
from datetime import datetime

from signoff.approvals.requirement import is_approver, may_decide_by_role
from signoff.domain.actor import Actor
from signoff.domain.approval import REQUESTER
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.errors import AlreadyDecided, Expired, RunNotActive, SignoffError
from signoff.ports.store import Tx
from signoff.service.deps import Deps


def may_decide(deps: Deps, actor: Actor, call: Call) -> bool:
    """Questions of one's own, and whatever the policy allows. A policy that raises says no."""
    if call.tenant != actor.tenant:
        return False
    if call.kind is ToolKind.ASK:
        return may_decide_by_role(actor, replace(call, approver=REQUESTER, widened=()))
    return is_approver(deps.policy, actor, call)


def closed(tx: Tx, call: Call, now: datetime) -> SignoffError | None:
    """Why the card can be decided no more, if it cannot: `Expired`, `RunNotActive` or `AlreadyDecided`."""
    if call.status is CallStatus.EXPIRED:
        return Expired(call.id, call.expires_at or now)
    run = tx.run(call.run_id)
    if run is None or run.status.is_terminal:
        return RunNotActive(call.run_id)
    if not call.is_open:
        return already_decided(call)
    if call.expires_at is not None and now >= call.expires_at:
        return Expired(call.id, call.expires_at)
    return None


def already_decided(call: Call) -> AlreadyDecided:
    """Names whose answer stands: of an action in doubt, the one that resolved it."""
    return AlreadyDecided(call.id, status=call.status.value, decided_by=call.resolved_by or call.decided_by)
