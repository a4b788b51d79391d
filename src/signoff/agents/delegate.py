"""Delegation as the model sees it: a tool `ask_<agent>` (waits for the answer) or `start_<agent>` (does not)."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from pydantic import Field

from signoff.domain.call import ToolKind
from signoff.errors import ConfigurationError
from signoff.tools.definition import Tool
from signoff.tools.signature import read_signature


class Named(Protocol):
    """What a delegation needs to know of its target."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...


async def _task(task: Annotated[str, Field(min_length=1)]) -> None:
    """Read for its signature only; the turn carries delegations out.

    Args:
        task: What to do, with all the context needed: the other agent sees nothing of this conversation.
    """


@dataclass(frozen=True, slots=True)
class Delegate:
    """An agent that another may hand a task to.

    `agent` is an `Agent`, or a name (an agent may delegate to itself only by name). `roles` restrict who may
    cause it, as a tool's do. A `detached` one is started and survives the end of the run that started it;
    otherwise the caller waits for its answer.
    """

    agent: "Named | str"
    roles: Collection[str] = field(default=frozenset(), kw_only=True)
    detached: bool = field(default=False, kw_only=True)
    description: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):
            raise ConfigurationError(f"roles of the delegate {self.target!r} must be a set of names")
        object.__setattr__(self, "roles", frozenset(self.roles))

    @property
    def target(self) -> str:
        """The name of the agent that does the work."""
        return self.agent if isinstance(self.agent, str) else self.agent.name

    @property
    def tool_name(self) -> str:
        """How the model calls it."""
        return f"{'start' if self.detached else 'ask'}_{self.target}"

    def tool(self) -> Tool:
        """The tool of kind `agent`, with the one argument `task`."""
        signature, _ = read_signature(_task, tool=self.tool_name)
        return Tool(
            name=self.tool_name,
            description=self._described(),
            kind=ToolKind.AGENT,
            signature=signature,
            run=None,
            roles=frozenset(self.roles),
        )

    def _described(self) -> str:
        what = (
            f"Start the agent {self.target!r} on a task; it works on its own and does not answer here."
            if self.detached
            else f"Hand a task to the agent {self.target!r} and get its answer."
        )
        about = self.description or ("" if isinstance(self.agent, str) else self.agent.description)
        return f"{what} {about}".strip()
