"""The application's agents, by name. The first one is the default."""

from collections.abc import Iterable, Iterator

from signoff.agents.agent import Agent
from signoff.errors import ConfigurationError


class AgentRegistry:
    """Agents in the order they were given; each delegation leads to one of them."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        """Take the agents.

        Raises:
            ConfigurationError: none at all, two with one name, or a delegation to an agent that is not here.
        """
        self._agents: dict[str, Agent] = {}
        for agent in agents:
            if agent.name in self._agents:
                raise ConfigurationError(f"there are two agents named {agent.name!r}; rename one")
            self._agents[agent.name] = agent
        if not self._agents:
            raise ConfigurationError("there is no agent; pass agents=[Agent(...)]")
        for agent in self:
            self._check_delegates(agent)

    @property
    def default(self) -> Agent:
        """The agent of messages that name none."""
        return next(iter(self))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._agents)

    def get(self, name: str) -> Agent | None:
        """The agent, or None if there is none of this name."""
        return self._agents.get(name)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._agents.values())

    def _check_delegates(self, agent: Agent) -> None:
        for delegate in agent.delegates:
            target = self._agents.get(delegate.target)
            if target is None or not (isinstance(delegate.agent, str) or delegate.agent is target):
                which = "is not registered" if target is None else "is another agent of the same name"
                raise ConfigurationError(
                    f"agent {agent.name!r} delegates to {delegate.target!r}, which {which}; "
                    f"add it to agents=[...] (there are {', '.join(self._agents)})"
                )
