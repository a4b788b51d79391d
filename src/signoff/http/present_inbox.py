"""Cards that wait for a person, as an inbox shows them (WIRE 6.5 and 11)."""

from collections.abc import Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from signoff.domain.call import Call
from signoff.domain.frame import instant
from signoff.domain.safetext import safe_text
from signoff.http.present import Object, QuorumView
from signoff.ports.store import CardPage


class PendingCall(TypedDict):
    """A card in an inbox. `safeText` shows `input` with nothing invisible in it.

    A question set has `request` (WIRE 6.4), an action its approver and digest. `parentId` is the call by which
    another agent handed its work to `agentName`.
    """

    toolCallId: str
    toolName: str
    input: object
    threadId: str
    runId: str
    actorRef: str
    agentName: str
    requestedAt: str
    safeText: str
    parentId: NotRequired[str]
    approver: NotRequired[str]
    expiresAt: NotRequired[str]
    reason: NotRequired[str]
    confirmation: NotRequired[Object]
    target: NotRequired[Object]
    digest: NotRequired[str]
    quorum: NotRequired[QuorumView]
    inDoubt: NotRequired[Object]
    request: NotRequired[Object]


class PendingPage(TypedDict):
    """A page of cards. `total` counts all pages; no `nextCursor` on the last."""

    items: list[PendingCall]
    total: int
    nextCursor: NotRequired[str]


class DecisionAccepted(TypedDict):
    """The decision is recorded. `quorum` says how many votes there are, where more than one is needed."""

    ok: bool
    quorum: NotRequired[QuorumView]


class BatchResult(TypedDict):
    """What one decision of a batch would have been answered alone. `callStatus`: where a refused call stands."""

    toolCallId: str
    status: int
    ok: NotRequired[bool]
    quorum: NotRequired[QuorumView]
    code: NotRequired[str]
    message: NotRequired[str]
    error: NotRequired[str]
    callStatus: NotRequired[str]


class BatchResults(TypedDict):
    """One result a decision, in order."""

    results: list[BatchResult]


def pending_call(call: Call, *, votes: int = 0) -> PendingCall:
    """`call`, which waits for a person, as its card; so many have said yes already."""
    card = PendingCall(
        toolCallId=call.id,
        toolName=call.name,
        input=call.final_arguments,
        threadId=call.thread_id,
        runId=call.run_id,
        actorRef=call.actor_id,
        agentName=call.agent_name,
        requestedAt=instant(call.created_at),
        safeText=safe_text(call.final_arguments),
    )
    if call.parent_call_id is not None:
        card["parentId"] = call.parent_call_id
    if call.approver is not None:
        card["approver"] = call.approver
    if call.expires_at is not None:
        card["expiresAt"] = instant(call.expires_at)
    if call.request_reason is not None:
        card["reason"] = call.request_reason
    if call.confirmation is not None:
        card["confirmation"] = call.confirmation
    if call.target is not None:
        card["target"] = call.target
    if call.shown_digest is not None:
        card["digest"] = call.shown_digest
    if call.quorum > 1:
        card["quorum"] = QuorumView(needed=call.quorum, have=votes)
    if call.in_doubt is not None:
        card["inDoubt"] = call.in_doubt
    if call.request is not None:
        card["request"] = call.request
    return card


def pending_calls(cards: Sequence[Call], votes: Mapping[str, int]) -> list[PendingCall]:
    """`cards` with their `votes`, keyed by call."""
    return [pending_call(call, votes=votes.get(call.id, 0)) for call in cards]


def pending_page(page: CardPage, votes: Mapping[str, int]) -> PendingPage:
    """`page` of an inbox, with the `votes` on its cards."""
    view = PendingPage(items=pending_calls(page.cards, votes), total=page.total)
    if page.next_cursor is not None:
        view["nextCursor"] = page.next_cursor
    return view
