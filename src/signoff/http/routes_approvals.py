"""Decisions on cards, one or many, and the inboxes that list them."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import InvalidInput, SignoffError
from signoff.http import bodies
from signoff.http.bodies import request_body
from signoff.http.context import Door, reply
from signoff.http.paths import Cursor, Limit, NameFilter, instant_of
from signoff.http.present_inbox import (
    BatchResults,
    DecisionAccepted,
    PendingCall,
    PendingPage,
    pending_calls,
    pending_page,
)
from signoff.http.problems import problem_of, responses
from signoff.ports.store import CardFilter, CardOrder
from signoff.service.decide import Decided, DecisionRequest, Verb, decide, decide_many
from signoff.service.read import all_cards, my_cards, votes_on

TOTAL_HEADER = "X-Total-Count"
CURSOR_HEADER = "X-Next-Cursor"

AGE_MAX_S = 10 * 366 * 24 * 3600

_BODIES: dict[Verb, type[bodies.DecisionBody]] = {
    Verb.APPROVE: bodies.ApproveBody,
    Verb.REJECT: bodies.RejectBody,
    Verb.ANSWER: bodies.AnswerBody,
    Verb.SKIP: bodies.SkipBody,
    Verb.SETTLE: bodies.SettleBody,
}

_SUMMARIES = {
    Verb.APPROVE: "Let an action run, or confirm the defaults of a question set",
    Verb.REJECT: "Refuse an action, or skip a question set",
    Verb.ANSWER: "Answer a question set",
    Verb.SKIP: "Skip a question set",
    Verb.SETTLE: "Say what an action in doubt has returned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a request asked of an inbox; the tenant comes from the actor."""

    filter: CardFilter
    cursor: str | None
    limit: int
    order: CardOrder


def add_approval_routes(router: APIRouter, door: Door) -> None:
    """`/tool-call` and `/approvals`."""
    for verb in Verb:
        _add_decision_route(router, door, verb)

    @router.post(
        "/approvals/decide",
        responses=responses(400, 413, ok=BatchResults),
        openapi_extra=request_body(bodies.BatchBody),
    )
    async def decide_batch(
        actor: Actor = Depends(door.caller), body: bodies.BatchBody = Depends(door.body(bodies.BatchBody))
    ) -> Response:
        """Decide many cards. One result a card, in order, each with the status it would have had alone."""
        return reply({"results": await _decide_all(door, actor, body.decisions)})

    def asked(
        limit: Limit = 100,
        cursor: Cursor = None,
        tool: NameFilter = None,
        agent: NameFilter = None,
        due: Annotated[str | None, Query(description="Only cards whose deadline is before this instant")] = None,
        age: Annotated[
            int | None, Query(ge=0, le=AGE_MAX_S, description="Only cards older than so many seconds")
        ] = None,
        order: Annotated[CardOrder, Query(description="Longest waiting or nearest deadline first")] = CardOrder.OLDEST,
    ) -> Listing:
        """Dependency: which cards, and which page of them."""
        filter_ = CardFilter(
            tenant="",
            tool=tool,
            agent=agent,
            deadline_before=None if due is None else instant_of(due, field="due"),
            requested_before=None if age is None else door.deps.clock.now() - timedelta(seconds=age),
        )
        return Listing(filter=filter_, cursor=cursor, limit=limit, order=order)

    @router.get("/approvals/mine", responses=responses(400, ok=list[PendingCall]))
    async def list_my_approvals(actor: Actor = Depends(door.caller), listing: Listing = Depends(asked)) -> Response:
        """What waits in the caller's own runs.

        A bare array; the total and the next page's cursor are in `X-Total-Count` and `X-Next-Cursor`.
        """
        page = await my_cards(
            door.deps, actor, listing.filter, cursor=listing.cursor, limit=listing.limit, order=listing.order
        )
        headers = {TOTAL_HEADER: str(page.total)}
        if page.next_cursor is not None:
            headers[CURSOR_HEADER] = page.next_cursor
        return reply(pending_calls(page.cards, await votes_on(door.deps, page.cards)), headers=headers)

    @router.get("/approvals", responses=responses(400, 403, ok=PendingPage))
    async def list_approvals(
        actor: Actor = Depends(door.caller),
        listing: Listing = Depends(asked),
        actor_id: Annotated[NameFilter, Query(alias="actor")] = None,
    ) -> Response:
        """Everything that waits in the caller's tenant, for holders of the inbox role."""
        filter_ = replace(listing.filter, actor_id=actor_id)
        page = await all_cards(
            door.deps, actor, filter_, cursor=listing.cursor, limit=listing.limit, order=listing.order
        )
        return reply(pending_page(page, await votes_on(door.deps, page.cards)))


def _add_decision_route(router: APIRouter, door: Door, verb: Verb) -> None:
    model = _BODIES[verb]

    async def decide_call(
        actor: Actor = Depends(door.caller), body: bodies.DecisionBody = Depends(door.body(model))
    ) -> Response:
        return reply(_accepted(await decide(door.deps, actor, _request(verb, body))))

    router.add_api_route(
        f"/tool-call/{verb}",
        decide_call,
        methods=["POST"],
        name=f"{verb}_call",
        summary=_SUMMARIES[verb],
        responses=responses(400, 403, 404, 409, 410, 413, ok=DecisionAccepted),
        openapi_extra=request_body(model),
    )


def _request(verb: Verb, body: bodies.DecisionBody) -> DecisionRequest:
    request = DecisionRequest(call_id=body.tool_call_id, verb=verb, run_id=body.run_id, via=body.via)
    match body:
        case bodies.ApproveBody():
            remember = body.remember is True
            return replace(request, remember=remember, arguments=body.arguments, digest=body.digest)
        case bodies.RejectBody():
            return replace(request, reason=body.reason, digest=body.digest)
        case bodies.AnswerBody():
            return replace(request, answers=body.answers)
        case bodies.SettleBody():
            return replace(request, output=body.output, reason=body.reason)
        case _:
            return request


def _accepted(decided: Decided) -> JsonObject:
    accepted: JsonObject = {"ok": True}
    if decided.needed > 1:
        accepted["quorum"] = {"needed": decided.needed, "have": decided.have}
    return accepted


async def _decide_all(door: Door, actor: Actor, entries: list[bodies.Object]) -> list[JsonObject]:
    """A malformed entry is refused by itself; the others are decided."""
    read = [_read_entry(entry) for entry in entries]
    outcomes = iter(await decide_many(door.deps, actor, [item for item in read if isinstance(item, DecisionRequest)]))
    return [
        _result(entry, next(outcomes) if isinstance(item, DecisionRequest) else item)
        for entry, item in zip(entries, read, strict=True)
    ]


def _read_entry(entry: bodies.Object) -> DecisionRequest | InvalidInput:
    try:
        verb = Verb(str(entry.get("decision")))
    except ValueError:
        return InvalidInput(f"decision must be one of {', '.join(Verb)}", field="decision")
    try:
        return _request(verb, bodies.check(_BODIES[verb], entry))
    except InvalidInput as error:
        return error


def _result(entry: bodies.Object, outcome: Decided | SignoffError) -> JsonObject:
    call_id = entry.get("toolCallId")
    result: JsonObject = {"toolCallId": call_id if isinstance(call_id, str) else ""}
    if isinstance(outcome, Decided):
        return {**result, "status": 200, **_accepted(outcome)}
    status, body = problem_of(outcome)
    # Not under the batch's own name: a refusal's `status` says where the call stands.
    standing = {"callStatus": body.pop("status")} if "status" in body else {}
    return {**result, "status": status, **body, **standing}
