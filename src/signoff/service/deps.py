"""What the use cases share. Built once, by `app.py`."""

from dataclasses import dataclass, field

from signoff.agents.registry import AgentRegistry
from signoff.approvals.links import DecisionLinks
from signoff.ports.clock import Clock
from signoff.ports.ids import Ids
from signoff.ports.model import ModelCatalog
from signoff.ports.policy import ApprovalPolicy
from signoff.ports.quota import Quota
from signoff.ports.runner import Runner
from signoff.ports.sink import Sink
from signoff.ports.store import Store
from signoff.turn.deps import TurnDeps
from signoff.turn.events import Events


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds at the door. Characters, unless the name says otherwise."""

    message_max: int = 200_000
    title_max: int = 200
    reason_max: int = 4096
    page_context_bytes_max: int = 64 * 1024
    arguments_bytes_max: int = 256 * 1024
    output_bytes_max: int = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """Ports and settings of the use cases. `inbox_role`: who may see and decide from the gated inbox.

    `links`: how decision links are made; None: there are none.
    """

    turn: TurnDeps
    runner: Runner
    sink: Sink
    limits: Limits = field(default_factory=Limits)
    inbox_role: str | None = None
    links: DecisionLinks | None = None

    @property
    def store(self) -> Store:
        """Threads, runs, cards."""
        return self.turn.store

    @property
    def agents(self) -> AgentRegistry:
        """The agents."""
        return self.turn.agents

    @property
    def models(self) -> ModelCatalog:
        """The models."""
        return self.turn.models

    @property
    def policy(self) -> ApprovalPolicy:
        """Who must say yes, and who may."""
        return self.turn.policy

    @property
    def quota(self) -> Quota | None:
        """How much an actor may spend."""
        return self.turn.quota

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.turn.clock

    @property
    def ids(self) -> Ids:
        """Ids."""
        return self.turn.ids

    @property
    def events(self) -> Events:
        """Diagnostics."""
        return self.turn.events
