"""What a front end asks about: agents, tools, quota, open cards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from signoff.agents.agent import Agent, Persona
from signoff.domain.actor import Actor
from signoff.domain.call import Call, ToolKind
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import Forbidden, InvalidInput, NotFound
from signoff.ports.quota import QuotaWindow
from signoff.ports.store import CardFilter, CardOrder, CardPage, Tx
from signoff.service.deps import Deps
from signoff.tools.gate import Access, offered

PAGE_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent as a front end sees it."""

    name: str
    description: str
    is_default: bool
    locked_model: str | None
    personas: Sequence[Persona]
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
    return [
        AgentView(
            name=agent.name,
            description=agent.description,
            is_default=agent is deps.agents.default,
            locked_model=None,
            personas=agent.personas,
            default_persona=agent.default_persona,
        )
        for agent in deps.agents
    ]


async def list_tools(deps: Deps, actor: Actor, agent: str | None) -> list[ToolSummary]:
    """Tools of one agent (default: the default agent; ``"*"``: of all) that the actor may use. Raises `NotFound`."""
    summaries: dict[str, ToolSummary] = {}
    access = Access(actor=actor, default_role=deps.turn.settings.default_role, authorizer=deps.turn.authorizer)
    for each in _agents(deps, agent):
        for tool in await offered(each.toolset, access):
            summaries.setdefault(tool.name, ToolSummary(name=tool.name, kind=tool.kind, presentation=tool.presentation))
    return list(summaries.values())


def _agents(deps: Deps, name: str | None) -> list[Agent]:
    if name == "*":
        return list(deps.agents)
    if name is None:
        return [deps.agents.default]
    agent = deps.agents.get(name)
    if agent is None:
        raise NotFound("agent", name)
    return [agent]


async def quota_today(deps: Deps, actor: Actor) -> QuotaToday:
    """The actor's spending of the day."""
    now = deps.clock.now()
    day = now.date().isoformat()

    def look(tx: Tx) -> QuotaToday:
        spent = tx.spent(actor_id=actor.id, tenant=actor.tenant, from_day=day, to_day=day)
        windows = [] if deps.quota is None else deps.quota.windows(tx, actor, now)
        limit = next((window.limit_tokens for window in windows if window.period == "day"), None)
        return QuotaToday(
            used_tokens=spent.tokens,
            limit_tokens=limit,
            within_limit=not any(window.is_spent for window in windows),
            cost_usd=spent.cost_usd,
        )

    return await deps.store.read(look)


async def quota_windows(deps: Deps, actor: Actor) -> list[QuotaWindow]:
    """The actor's quota windows; empty without a quota."""
    quota = deps.quota
    if quota is None:
        return []
    now = deps.clock.now()
    return await deps.store.read(lambda tx: quota.windows(tx, actor, now))


async def my_cards(
    deps: Deps,
    actor: Actor,
    filter_: CardFilter | None = None,
    *,
    cursor: str | None = None,
    limit: int = 100,
    order: CardOrder = CardOrder.OLDEST,
) -> CardPage:
    """Open cards of the actor's own runs. Raises `InvalidInput`."""
    asked = filter_ or CardFilter(tenant=actor.tenant)
    mine = replace(asked, tenant=actor.tenant, actor_id=actor.id, open_at=deps.clock.now())
    return await deps.store.read(lambda tx: tx.open_cards(mine, cursor=cursor, limit=_page_size(limit), order=order))


async def all_cards(
    deps: Deps,
    actor: Actor,
    filter_: CardFilter,
    *,
    cursor: str | None,
    limit: int,
    order: CardOrder = CardOrder.OLDEST,
) -> CardPage:
    """Open cards of the actor's tenant, for those whom `Signoff(inbox_role=…)` lets see them.

    Raises:
        Forbidden: the actor lacks the inbox role, or none is set.
        InvalidInput: bad cursor or limit.
    """
    if deps.inbox_role is None or not actor.holds(deps.inbox_role):
        raise Forbidden("you may not see other people's requests")
    own_tenant = replace(filter_, tenant=actor.tenant, open_at=deps.clock.now())
    return await deps.store.read(
        lambda tx: tx.open_cards(own_tenant, cursor=cursor, limit=_page_size(limit), order=order)
    )


async def votes_on(deps: Deps, cards: Sequence[Call]) -> dict[str, int]:
    """How many people have said yes to each of `cards` that needs more than one."""
    return await deps.store.read(lambda tx: count_votes(tx, cards))


def count_votes(tx: Tx, cards: Sequence[Call]) -> dict[str, int]:
    """As `votes_on`, in a transaction."""
    return {card.id: len(tx.votes_of(card.id)) for card in cards if card.quorum > 1}


async def call_of(deps: Deps, actor: Actor, call_id: str) -> Call:
    """One call, its card included, for its owner or approver. Raises `NotFound`, `Forbidden`."""
    call = await deps.store.read(lambda tx: tx.call(call_id))
    if call is None:
        raise NotFound("call", call_id)
    own = actor.owns(actor_id=call.actor_id, tenant=call.tenant)
    if not own and (call.tenant != actor.tenant or deps.policy.can_decide(actor, call) is not True):
        raise Forbidden("this request is not yours to see")
    return call


def _page_size(limit: int) -> int:
    if not 1 <= limit <= PAGE_MAX:
        raise InvalidInput(f"limit must be 1-{PAGE_MAX}", field="limit")
    return limit
