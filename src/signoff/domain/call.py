"""One tool call: what the model asked, what a person said, what came of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from signoff.domain.approval import Verdict
from signoff.domain.jsonvalue import Json, JsonObject, digest


class ToolKind(StrEnum):
    """`read` runs at once, `action` waits for a person, `agent` delegates, `ask` asks the user."""

    READ = "read"
    ACTION = "action"
    AGENT = "agent"
    ASK = "ask"

    @property
    def on_wire(self) -> str:
        """The wire knows two kinds: delegation counts as read, questions as action (WIRE 4, 5.8)."""
        return "action" if self in (ToolKind.ACTION, ToolKind.ASK) else "read"


class CallStatus(StrEnum):
    """`pending` and `in_doubt` are open cards; the last five are final."""

    RUNNING = "running"
    PENDING = "pending"
    APPROVED = "approved"
    IN_DOUBT = "in_doubt"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


OPEN = frozenset({CallStatus.PENDING, CallStatus.IN_DOUBT})
FINAL = frozenset(
    {
        CallStatus.COMPLETED,
        CallStatus.FAILED,
        CallStatus.REJECTED,
        CallStatus.EXPIRED,
        CallStatus.CANCELLED,
    }
)
LIVE = frozenset(CallStatus) - FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One tool call and, where a person is asked, its card.

    `id` is made by us and unique over all runs; `provider_id` is what the model called it. `arguments` are what
    the card shows and what runs, unless a person edited them: then `edited_arguments` run and both stay on
    record. `index` orders the calls of one step. `parent_call_id` is the delegating call in the watched run.

    The card: `approver`, `quorum`, `may_requester`, `request_reason`, `confirmation` (``title, verb, detail?``),
    `target`, `digest` (of tool, schema version and arguments), `expires_at`; for a question set `request` (WIRE
    6.4). `in_doubt` is ``{startedAt, attempt, round}``, and once a person has resolved it also ``{resolution,
    resolvedBy, resolvedVia, resolvedAt, reason?}``. `widened` are roles that the ladder let in.

    The outcome: `output` is the JSON the model and the thread see, `error` a short text when the call did not
    succeed. `decided_by` is the decider, not the requester; whoever resolves a doubt later does not replace them.
    """

    id: str
    run_id: str
    thread_id: str
    message_id: str
    step: int
    index: int
    provider_id: str = ""
    name: str
    kind: ToolKind
    arguments: Json
    edited_arguments: JsonObject | None = None
    status: CallStatus
    actor_id: str
    tenant: str = ""
    agent_name: str
    parent_call_id: str | None = None
    child_run_id: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    output: Json = None
    error: str | None = None

    approver: str | None = None
    quorum: int = 1
    may_requester: bool = True
    request_reason: str | None = None
    confirmation: JsonObject | None = None
    target: JsonObject | None = None
    digest: str | None = None
    schema_version: str | None = None
    expires_at: datetime | None = None
    widened: tuple[str, ...] = ()
    request: JsonObject | None = None
    in_doubt: JsonObject | None = None

    decided_by: str | None = None
    decided_via: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None
    remember: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a person is being asked."""
        return self.status in OPEN

    @property
    def shown_digest(self) -> str | None:
        """What a decision about the card echoes.

        For an action in doubt it covers the round too: a repeated click on the first card must not run it again.
        """
        if self.in_doubt is None or self.digest is None:
            return self.digest
        return digest({"card": self.digest, "round": self.in_doubt.get("round", 1)})

    @property
    def resolved_by(self) -> str | None:
        """Who has resolved the doubt, if there was one."""
        return self._of_doubt("resolvedBy")

    @property
    def settled_by(self) -> tuple[str | None, str | None]:
        """By whom the card was settled as it is, and via what: a yes stays who said it, giving up is another's no."""
        if self._of_doubt("resolution") == Verdict.REJECTED:
            return self.resolved_by, self._of_doubt("resolvedVia")
        return self.decided_by, self.decided_via

    def _of_doubt(self, key: str) -> str | None:
        value = None if self.in_doubt is None else self.in_doubt.get(key)
        return value if isinstance(value, str) else None

    @property
    def final_arguments(self) -> Json:
        """What runs: the edited arguments where a person edited them."""
        return self.edited_arguments if self.edited_arguments is not None else self.arguments
