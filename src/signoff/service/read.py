"""What a front end asks about: agents, tools, quota, open cards."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from signoff.domain.actor import Actor
from signoff.domain.call import Call, ToolKind
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.quota import QuotaWindow
from signoff.ports.store import CardFilter, CardPage
from signoff.service.deps import Deps


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent as a front end sees it."""

    name: str
    description: str
    is_default: bool
    locked_model: str | None
    personas: Sequence[str]
    default_persona: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSummary:
    """A tool as a front end sees it."""

    name: str
    kind: ToolKind
    presentation: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaToday:
    """The actor's day (UTC). `limit_tokens` None: unlimited."""

    used_tokens: int
    limit_tokens: int | None
    within_limit: bool
    cost_usd: Decimal


def list_agents(deps: Deps) -> list[AgentView]:
    """All agents, in the order they were given to `Signoff`."""
    raise NotImplementedError


def list_tools(deps: Deps, actor: Actor, agent: str | None) -> list[ToolSummary]:
    """Tools of one agent (default: the default agent; ``"*"``: of all) that the actor may use. Raises `NotFound`."""
    raise NotImplementedError


async def quota_today(deps: Deps, actor: Actor) -> QuotaToday:
    """The actor's spending of the day."""
    raise NotImplementedError


async def quota_windows(deps: Deps, actor: Actor) -> list[QuotaWindow]:
    """The actor's quota windows; empty without a quota."""
    raise NotImplementedError


async def my_cards(deps: Deps, actor: Actor, *, cursor: str | None = None, limit: int = 100) -> CardPage:
    """Open cards of the actor's own runs, oldest first."""
    raise NotImplementedError


async def all_cards(deps: Deps, actor: Actor, filter_: CardFilter, *, cursor: str | None, limit: int) -> CardPage:
    """Open cards of the actor's tenant, for those whom `Signoff(inbox_role=…)` lets see them.

    Raises:
        Forbidden: the actor lacks the inbox role, or none is set.
    """
    raise NotImplementedError


async def call_of(deps: Deps, actor: Actor, call_id: str) -> Call:
    """One call, its card included, for its owner or approver. Raises `NotFound`, `Forbidden`."""
    raise NotImplementedError
