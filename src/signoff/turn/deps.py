"""What a turn needs. Built once, by `app.py`; the loop itself reaches all of it through checkpoints."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from signoff.agents.registry import AgentRegistry
from signoff.ports.clock import Clock
from signoff.ports.engine import Retry
from signoff.ports.ids import Ids
from signoff.ports.model import Model, ModelCatalog
from signoff.ports.policy import ApprovalPolicy
from signoff.ports.quota import Quota
from signoff.ports.store import Store
from signoff.tools.gate import Authorizer
from signoff.turn.events import Events


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """Bounds of a turn. Sizes in bytes of JSON text.

    `grace`: a card with a deadline that was approved in time may still start this long after the deadline (C34).
    `text_flush`: streamed text is written, and shown, in pieces of this much time.
    """

    default_role: str | None = None
    output_bytes_max: int = 256 * 1024
    calls_per_step_max: int = 128
    tool_timeout: timedelta = timedelta(minutes=5)
    grace: timedelta = timedelta(minutes=15)
    text_flush: timedelta = timedelta(milliseconds=30)
    model_retry: Retry = field(default_factory=lambda: Retry(attempts=4, backoff=timedelta(seconds=1)))
    depth_max: int = 5
    repeats_max: int = 1
    children_max: int = 16


class SettleDeps(Protocol):
    """The little that settling a run needs: operators settle runs without an application at hand."""

    @property
    def clock(self) -> Clock: ...

    @property
    def events(self) -> Events: ...

    @property
    def notifies(self) -> bool:
        """Whether closed cards are told to those who were notified of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDeps:
    """The ports and registries of a turn."""

    store: Store
    agents: AgentRegistry
    models: ModelCatalog
    default_model: str | Model | None
    policy: ApprovalPolicy
    authorizer: Authorizer | None
    quota: Quota | None
    clock: Clock
    ids: Ids
    events: Events
    settings: TurnSettings
    notifies: bool = False
