"""Agents, tools and quota, as a front end's pickers and meters show them (WIRE 6.5)."""

from collections.abc import Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from signoff.domain.frame import instant
from signoff.http.present import Object, tool_kind
from signoff.ports.quota import QuotaWindow
from signoff.service.read import AgentView, QuotaToday, ToolSummary


class QuotaTodayView(TypedDict):
    """The day (UTC); a null limit is none."""

    usedTokens: int
    limitTokens: int | None
    withinLimit: bool
    costUsd: float


class QuotaWindowView(TypedDict):
    """One window of the quota."""

    period: str
    usedTokens: int
    limitTokens: NotRequired[int]
    usedUsd: float
    limitUsd: NotRequired[float]
    resetsAt: str


class SpentWindow(TypedDict):
    """The window that lets nothing more start."""

    period: str


class QuotaView(TypedDict):
    """All windows, and the spent one if there is one."""

    windows: list[QuotaWindowView]
    blocked: NotRequired[SpentWindow]


class AgentSummary(TypedDict):
    """An agent in a picker."""

    name: str
    description: str
    isDefault: NotRequired[bool]
    lockedModel: NotRequired[str]
    personas: NotRequired[list[str]]
    defaultPersona: NotRequired[str]


class ToolListing(TypedDict):
    """A tool in a list."""

    name: str
    kind: Literal["read", "action", "agent"]
    presentation: NotRequired[Object]


class Persona(TypedDict):
    """A persona in a picker."""

    id: str
    label: str


def quota_today(today: QuotaToday) -> QuotaTodayView:
    """`today` on the wire."""
    return QuotaTodayView(
        usedTokens=today.used_tokens,
        limitTokens=today.limit_tokens,
        withinLimit=today.within_limit,
        costUsd=float(today.cost_usd),
    )


def quota(windows: Sequence[QuotaWindow]) -> QuotaView:
    """`windows` on the wire."""
    view = QuotaView(windows=[_quota_window(window) for window in windows])
    spent = next((window for window in windows if window.is_spent), None)
    if spent is not None:
        view["blocked"] = SpentWindow(period=spent.period)
    return view


def _quota_window(window: QuotaWindow) -> QuotaWindowView:
    view = QuotaWindowView(
        period=window.period,
        usedTokens=window.used_tokens,
        usedUsd=float(window.used_usd),
        resetsAt=instant(window.resets_at),
    )
    if window.limit_tokens is not None:
        view["limitTokens"] = window.limit_tokens
    if window.limit_usd is not None:
        view["limitUsd"] = float(window.limit_usd)
    return view


def agent_summary(agent: AgentView) -> AgentSummary:
    """`agent` in a picker."""
    view = AgentSummary(name=agent.name, description=agent.description)
    if agent.is_default:
        view["isDefault"] = True
    if agent.locked_model is not None:
        view["lockedModel"] = agent.locked_model
    if agent.personas:
        view["personas"] = [persona.name for persona in agent.personas]
    if agent.default_persona is not None:
        view["defaultPersona"] = agent.default_persona
    return view


def tool_listing(tool: ToolSummary) -> ToolListing:
    """`tool` in a list."""
    view = ToolListing(name=tool.name, kind=tool_kind(tool.kind))
    if tool.presentation is not None:
        view["presentation"] = tool.presentation
    return view
