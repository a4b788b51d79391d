"""Who must say yes, and who may say it."""

from collections.abc import Awaitable
from typing import Protocol

from signoff.domain.actor import Actor
from signoff.domain.approval import Requirement
from signoff.domain.call import Call
from signoff.domain.thread import Thread


class ToolView(Protocol):
    """What a policy may know about a tool."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def roles(self) -> frozenset[str]: ...

    @property
    def approval(self) -> Requirement | None:
        """The requirement written at the tool itself, if any."""
        ...


class ApprovalPolicy(Protocol):
    """Asked once per action call, inside its claim checkpoint; the answer is journaled."""

    def requirement_for(
        self, call: Call, tool: ToolView, actor: Actor, thread: Thread
    ) -> Requirement | Awaitable[Requirement]:
        """What the call needs. Raising, or answering anything else, means: ask the requester."""
        ...

    def can_decide(self, decider: Actor, call: Call) -> bool:
        """Whether `decider` is an approver of this card. Raising means no."""
        ...
