"""For whom, and under which rules, a turn looks tools up."""

from signoff.agents.agent import Agent
from signoff.errors import ConfigurationError
from signoff.tools.gate import Access
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput


def access_of(deps: TurnDeps, agent: Agent, turn: TurnInput) -> Access:
    """The turn's actor, narrowed by the persona's allow-list."""
    persona = agent.persona(turn.persona)
    return Access(
        actor=turn.actor,
        allowed=None if persona is None or persona.tools is None else frozenset(persona.tools),
        default_role=deps.settings.default_role,
        authorizer=deps.authorizer,
    )


def agent_of(deps: TurnDeps, turn: TurnInput) -> Agent:
    """The turn's agent.

    Raises:
        ConfigurationError: this process does not have it (any more, or yet).
    """
    agent = deps.agents.get(turn.agent)
    if agent is None:
        raise ConfigurationError(f"the agent {turn.agent!r} is not available here")
    return agent
