"""Domain values as the JSON of WIRE section 6. Optional fields are left out; null only where the wire lists it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, assert_never

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from signoff.domain.approval import REQUESTER
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.frame import instant
from signoff.domain.thread import Message, Role, Thread
from signoff.service.threads import ThreadView

Object = Mapping[str, object]

_NO_VOTES: Mapping[str, int] = {}


class ThreadSummary(TypedDict):
    """A conversation in a list. `activeRunId` holds the thread; `activeStreamId` is its older name."""

    id: str
    title: str
    transient: bool
    createdAt: str
    updatedAt: str
    defaultAgent: str | None
    activeRunId: str | None
    activeStreamId: NotRequired[str]
    lastMessagePreview: NotRequired[str]
    model: NotRequired[str]
    persona: NotRequired[str]


class ToolCallView(TypedDict):
    """What the model asked for, as it was streamed."""

    id: str
    name: str
    input: object
    kind: Literal["read", "action", "agent"]
    parentId: NotRequired[str]


class ToolResultView(TypedDict):
    """What came of a call. A call without a result still waits or runs."""

    id: str
    name: str
    output: object
    error: NotRequired[str]


class QuorumView(TypedDict):
    """How many people must say yes, and how many have."""

    needed: int
    have: int


class ApprovalView(TypedDict):
    """Where an action's approval stands. `reason` is why it is asked while pending, then the decider's reason."""

    toolCallId: str
    approver: str
    status: Literal["pending", "approved", "rejected", "expired"]
    expiresAt: NotRequired[str]
    remember: NotRequired[bool]
    decidedBy: NotRequired[str]
    decidedVia: NotRequired[str]
    reason: NotRequired[str]
    confirmation: NotRequired[Object]
    target: NotRequired[Object]
    digest: NotRequired[str]
    quorum: NotRequired[QuorumView]
    inDoubt: NotRequired[Object]
    editedInput: NotRequired[Object]


class StoredMessage(TypedDict):
    """One row of a thread: a user's message, or one step of the model with its calls and its sub-agents' calls.

    `runId` tells the answer of a detached sub-agent (its receipt names the run) from what stands around it.
    """

    id: str
    role: Literal["user", "assistant", "system"]
    content: str
    createdAt: str
    toolCalls: NotRequired[list[ToolCallView]]
    toolResults: NotRequired[list[ToolResultView]]
    approvals: NotRequired[list[ApprovalView]]
    usage: NotRequired[Object]
    agentName: NotRequired[str]
    runId: NotRequired[str]
    reasoning: NotRequired[str]
    metadata: NotRequired[Object]


class ThreadDetail(ThreadSummary):
    """A conversation with its messages, oldest first."""

    messages: list[StoredMessage]


def thread_summary(thread: Thread) -> ThreadSummary:
    """`thread` in a list."""
    summary = ThreadSummary(
        id=thread.id,
        title=thread.title,
        transient=thread.transient,
        createdAt=instant(thread.created_at),
        updatedAt=instant(thread.updated_at),
        defaultAgent=thread.default_agent,
        activeRunId=thread.active_run_id,
    )
    if thread.active_run_id is not None:
        summary["activeStreamId"] = thread.active_run_id
    if thread.last_message_preview is not None:
        summary["lastMessagePreview"] = thread.last_message_preview
    if thread.model is not None:
        summary["model"] = thread.model
    if thread.persona is not None:
        summary["persona"] = thread.persona
    return summary


def thread_detail(view: ThreadView) -> ThreadDetail:
    """`view` with everything that was said and done in it."""
    return {
        **thread_summary(view.thread),
        "messages": [
            stored_message(message, view.calls.get(message.id, []), votes=view.votes) for message in view.messages
        ],
    }


def stored_message(message: Message, calls: Sequence[Call], *, votes: Mapping[str, int] = _NO_VOTES) -> StoredMessage:
    """A row of a thread. The calls' results and approvals are derived from their own rows, never stored twice."""
    row = StoredMessage(
        id=message.id,
        role=message.role.value,
        content=message.content,
        createdAt=instant(message.created_at),
    )
    if calls:
        row["toolCalls"] = [_tool_call(call) for call in calls]
        row["toolResults"] = [result for call in calls if (result := tool_result(call)) is not None]
        approvals = [approval_view(call, votes=votes.get(call.id, 0)) for call in calls]
        if shown := [approval for approval in approvals if approval is not None]:
            row["approvals"] = shown
    if message.usage is not None:  # null would throw in a client that sums the rows of a turn
        row["usage"] = message.usage
    if message.agent_name is not None:
        row["agentName"] = message.agent_name
    if message.run_id is not None and message.role is Role.ASSISTANT:
        row["runId"] = message.run_id
    if message.reasoning:
        row["reasoning"] = message.reasoning
    if message.metadata is not None:
        row["metadata"] = message.metadata
    return row


def _tool_call(call: Call) -> ToolCallView:
    view = ToolCallView(id=call.id, name=call.name, input=call.arguments, kind=tool_kind(call.kind))
    if call.parent_call_id is not None:
        view["parentId"] = call.parent_call_id
    return view


def tool_kind(kind: ToolKind) -> Literal["read", "action", "agent"]:
    match kind:
        case ToolKind.READ:
            return "read"
        case ToolKind.AGENT:
            return "agent"
        case ToolKind.ACTION | ToolKind.ASK:
            return "action"
        case _:
            assert_never(kind)


def tool_result(call: Call) -> ToolResultView | None:
    """What a reloaded thread shows for `call`; None while it has no outcome, and it shows as pending."""
    match call.status:
        case CallStatus.RUNNING | CallStatus.PENDING | CallStatus.APPROVED | CallStatus.IN_DOUBT:
            return None
        case CallStatus.COMPLETED:
            return _result(call, call.output)
        case CallStatus.REJECTED if call.kind is ToolKind.ASK:
            return _result(call, call.output)  # skipped: the outcome says so, and which defaults hold
        case CallStatus.REJECTED:
            return _result(call, _cut("rejected", call.decision_reason), "rejected")
        case CallStatus.EXPIRED:
            return _result(call, _cut("expired", "approval expired"), "expired")
        case CallStatus.CANCELLED:
            return _result(call, {"cancelled": True}, "cancelled")
        case CallStatus.FAILED:
            error = call.error or "failed"
            return _result(call, call.output if call.output is not None else _cut("failed", error), error)
        case _:
            assert_never(call.status)


def _result(call: Call, output: object, error: str | None = None) -> ToolResultView:
    result = ToolResultView(id=call.id, name=call.name, output=output)
    if error is not None:
        result["error"] = error
    return result


def _cut(how: str, reason: str | None) -> Object:
    return {how: True} if reason is None else {how: True, "reason": reason}


def approval_view(call: Call, *, votes: int = 0) -> ApprovalView | None:
    """Where the approval of `call` stands; None for a call that nobody was asked about, or that died undecided.

    `votes`: how many have said yes so far, where it takes more than one.
    """
    status = _approval_status(call)
    asked = call.approver is not None or call.in_doubt is not None
    if call.kind is not ToolKind.ACTION or not asked or status is None:
        return None
    view = ApprovalView(toolCallId=call.id, approver=call.approver or REQUESTER, status=status)
    reason = call.request_reason if status == "pending" else call.decision_reason
    if call.expires_at is not None:
        view["expiresAt"] = instant(call.expires_at)
    if call.remember:
        view["remember"] = True
    decided_by, decided_via = call.settled_by
    if decided_by is not None:
        view["decidedBy"] = decided_by
    if decided_via is not None:
        view["decidedVia"] = decided_via
    if reason is not None:
        view["reason"] = reason
    if call.confirmation is not None:
        view["confirmation"] = call.confirmation
    if call.target is not None:
        view["target"] = call.target
    if call.shown_digest is not None:
        view["digest"] = call.shown_digest
    if call.quorum > 1 and status == "pending":
        view["quorum"] = QuorumView(needed=call.quorum, have=votes)
    if call.in_doubt is not None:
        view["inDoubt"] = call.in_doubt
    if call.edited_arguments is not None:
        view["editedInput"] = call.edited_arguments
    return view


def _approval_status(call: Call) -> Literal["pending", "approved", "rejected", "expired"] | None:
    match call.status:
        case CallStatus.PENDING | CallStatus.IN_DOUBT:
            return "pending"
        case CallStatus.REJECTED:
            return "rejected"
        case CallStatus.EXPIRED:
            return "expired"
        case CallStatus.APPROVED | CallStatus.RUNNING | CallStatus.COMPLETED | CallStatus.FAILED | CallStatus.CANCELLED:
            return "approved" if call.decided_at is not None else None
        case _:
            assert_never(call.status)
