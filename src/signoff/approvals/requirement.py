"""The policy's answer for one call, and who may decide it."""

import inspect
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeGuard

from signoff.domain.actor import Actor
from signoff.domain.approval import REQUESTER, Requirement
from signoff.domain.call import Call
from signoff.domain.thread import Thread
from signoff.ports.clock import Clock
from signoff.ports.deadline import run_within
from signoff.ports.policy import ApprovalPolicy, ToolView

_log = logging.getLogger("signoff.approvals")

ASK = Requirement()
POLICY_LIMIT = timedelta(seconds=30)


class DefaultPolicy:
    """What the tool says of itself; otherwise the requester approves, with no deadline."""

    def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        del call, actor, thread
        return tool.approval or ASK

    def can_decide(self, decider: Actor, call: Call) -> bool:
        """The requester decides for themselves, everyone else by role."""
        return may_decide_by_role(decider, call)


def may_decide_by_role(decider: Actor, call: Call) -> bool:
    """The rule unless a policy says otherwise: `"requester"` is the thread's own actor, anything else a role.

    Roles that the ladder let in count as well. Nobody decides for another tenant.
    """
    if decider.tenant != call.tenant:
        return False
    if (call.approver or REQUESTER) == REQUESTER and decider.id == call.actor_id:
        return True
    allowed = {role for role in (call.approver, *call.widened) if role and role != REQUESTER}
    return any(decider.holds(role) for role in allowed)


def is_approver(policy: ApprovalPolicy, decider: Actor, call: Call) -> bool:
    """Whether the policy lets `decider` decide. One that raises, or answers anything but True, says no."""
    try:
        return policy.can_decide(decider, call) is True
    except Exception:  # noqa: BLE001  # in doubt about rights, refuse
        _log.exception("the approval policy failed for call %s; refusing", call.id)
        return False


async def resolve_requirement(
    policy: ApprovalPolicy, call: Call, tool: ToolView, actor: Actor, thread: Thread, *, clock: Clock
) -> Requirement:
    """Ask the policy. One that raises, hangs, or answers anything but a sound `Requirement` means: ask (C29)."""
    try:
        answer: object = policy.requirement_for(call, tool, actor, thread)
        if inspect.isawaitable(answer):
            answer = await run_within(_awaited(answer), limit=POLICY_LIMIT, clock=clock)
    except Exception:  # noqa: BLE001  # in doubt, ask a person
        _log.exception("the approval policy failed for tool %r; asking", tool.name)
        return _fallback(tool)
    if not _is_sound(answer):
        _log.error("the approval policy answered %r for tool %r; asking", answer, tool.name)
        return _fallback(tool)
    return answer


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _fallback(tool: ToolView) -> Requirement:
    return tool.approval if tool.approval is not None and tool.approval.required else ASK


def _is_sound(answer: object) -> TypeGuard[Requirement]:
    """Whether it is a requirement that can be met. Policies are users' code: types are no promise."""
    if not isinstance(answer, Requirement):
        return False
    required: object = answer.required
    approver: object = answer.approver
    quorum: object = answer.quorum
    return (
        isinstance(required, bool)
        and isinstance(approver, str)
        and bool(approver)
        and isinstance(quorum, int)
        and quorum >= 1
        and (answer.ttl is None or answer.ttl.total_seconds() > 0)
    )
