"""The one gate that every call passes, whatever its kind, and the rule for what a model is offered."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from inspect import isawaitable
from typing import TypeAlias

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json
from signoff.ports.policy import ToolView
from signoff.tools.arguments import InvalidArguments
from signoff.tools.definition import Tool
from signoff.tools.registry import ToolRegistry
from signoff.tools.signature import Bound

Authorizer: TypeAlias = Callable[[Actor, str, ToolView], bool | Awaitable[bool]]
"""Whether the actor has the ability (the tool's `ability`). Only `True` means yes; raising means no."""

_NAMES_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """For whom, and under which rules, tools are looked up.

    `allowed` is the persona's allow-list (None: all of the agent's tools). `default_role` is what a tool
    without roles needs; None lets every authenticated actor use it.
    """

    actor: Actor
    allowed: frozenset[str] | None = None
    default_role: str | None = None
    authorizer: Authorizer | None = None


class RefusalReason(StrEnum):
    """Why a call did not pass."""

    UNKNOWN_TOOL = "unknown_tool"
    NOT_ALLOWED = "not_allowed"
    INVALID_ARGUMENTS = "invalid_arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The call may go on: a read runs, an action asks its policy."""

    tool: Tool
    bound: Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The call is settled as failed; `text` is its result, written for the model. `tool` is None if unknown."""

    text: str
    reason: RefusalReason
    tool: Tool | None = None


async def admit(tools: ToolRegistry, access: Access, name: str, arguments: Json) -> Admitted | Refused:
    """Let a call pass or refuse it. Never raises: doubt refuses.

    Args:
        tools: the agent's tools.
        access: who calls.
        name: as the model sent it.
        arguments: JSON text as the model sent it, or parsed.
    """
    tool = tools.get(name)
    if tool is None or not _in_allow_list(tool, access):
        known = ", ".join(each.name for each in await offered(tools, access)) or "none"
        text = f"There is no tool {name[:64]!r}. Known tools: {known[:_NAMES_CHARS_MAX]}."
        return Refused(text=text, reason=RefusalReason.UNKNOWN_TOOL)
    if not await _may_use(tool, access):
        text = f"This user may not use the tool {name!r}. Do not call it again; say so instead."
        return Refused(text=text, reason=RefusalReason.NOT_ALLOWED, tool=tool)
    try:
        bound = tool.parse(arguments)
    except InvalidArguments as error:
        text = f"The call of {name!r} was not made, its arguments are not valid: {error}"
        return Refused(text=text, reason=RefusalReason.INVALID_ARGUMENTS, tool=tool)
    return Admitted(tool=tool, bound=bound)


async def offered(tools: ToolRegistry, access: Access) -> tuple[Tool, ...]:
    """The tools that `admit` would let this actor use: all that the model is told about."""
    return tuple([tool for tool in tools if _in_allow_list(tool, access) and await _may_use(tool, access)])


def _in_allow_list(tool: Tool, access: Access) -> bool:
    return access.allowed is None or tool.name in access.allowed


async def _may_use(tool: Tool, access: Access) -> bool:
    needed = tool.roles or (frozenset() if access.default_role is None else frozenset({access.default_role}))
    if needed and needed.isdisjoint(access.actor.roles):
        return False
    return tool.ability is None or await _has_ability(tool, tool.ability, access)


async def _has_ability(tool: Tool, ability: str, access: Access) -> bool:
    if access.authorizer is None:
        return False
    try:
        answer = access.authorizer(access.actor, ability, tool)
        if isawaitable(answer):
            answer = await answer
    except Exception:  # noqa: BLE001  # a check that breaks says no
        return False
    return answer is True
