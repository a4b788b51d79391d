"""The work behind one user message, and the tokens it cost."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from signoff.domain.jsonvalue import JsonObject


class RunStatus(StrEnum):
    """`running` covers parked as well: what people see is whether the run has ended, and how."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended. The first terminal status wins."""
        return self is not RunStatus.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of one agent. A delegated run names its parent, and the stream a person watches.

    `stream_id` is the id of the run whose stream carries this run's frames: its own id for a top-level or
    detached run, the watched ancestor's for an awaited sub-agent. `durable` says which runner drives it;
    `parked` whether it currently waits for a person. `input` is what the turn was started with (see
    `turn.input`). `fingerprint` identifies the agent's definition (instructions, tools, schemas) at start.
    `owner` and `lease_until` belong to the inline runner: a run whose process is gone is settled by a sweep.
    `attempt_seq` is the number of the first frame of the model attempt under way: a crash withdraws from there.
    """

    id: str
    thread_id: str
    actor_id: str
    actor_roles: tuple[str, ...] = ()
    tenant: str = ""
    agent: str
    stream_id: str
    status: RunStatus = RunStatus.RUNNING
    durable: bool = False
    parked: bool = False
    parent_id: str | None = None
    parent_call_id: str | None = None
    detached: bool = False
    depth: int = 0
    input: JsonObject
    fingerprint: str = ""
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    error_code: str | None = None
    error: str | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    attempt_seq: int | None = None
    created_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        """Input plus output; what quotas count."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """A row of the ledger: one model call, whatever becomes of its run. `day` is the UTC date, ``YYYY-MM-DD``."""

    id: str
    run_id: str
    thread_id: str
    actor_id: str
    tenant: str
    agent: str
    model: str
    step: int
    attempt: int
    usage: Usage
    cost_usd: Decimal | None
    at: datetime
    day: str
