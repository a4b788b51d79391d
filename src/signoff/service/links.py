"""Decision links: a card decided from a mail or a chat message, by the one person the link was made for, once."""

import hashlib
import inspect
import logging
from dataclasses import dataclass, replace

from signoff.approvals.links import DecisionLinks, Link, read_token, url_of
from signoff.domain.actor import Actor
from signoff.domain.call import Call, ToolKind
from signoff.domain.jsonvalue import Json
from signoff.errors import (
    CardChanged,
    ConfigurationError,
    Forbidden,
    InvalidInput,
    LinkInvalid,
    LinkSpent,
    NotFound,
    SignoffError,
)
from signoff.ports.notifier import Notification
from signoff.ports.store import Tx
from signoff.service.decide import Decided, DecisionRequest, LinkUse, Verb, decide
from signoff.service.deps import Deps
from signoff.service.standing import closed, may_decide
from signoff.turn.card import doubt_round

_log = logging.getLogger("signoff.links")

VIA = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a link's page shows: the card, for whom, and how many have said yes."""

    link: Link
    call: Call
    votes: int


async def issue(deps: Deps, actor: Actor, call_id: str) -> str:
    """The URL under which `actor` may decide an open card. `actor` is as the application vouches for them.

    Raises:
        ConfigurationError: links are not set up.
        NotFound: no such card.
        Forbidden: the actor is not an approver of it.
        AlreadyDecided, Expired, RunNotActive: it is open no more.
        InvalidInput: the actor's id and roles do not fit into a link.
    """
    links = _configured(deps)
    link_id = deps.ids.secret()
    link = await deps.store.read(lambda tx: _link(deps, links, tx, actor, call_id, link_id))
    return url_of(links, link)


async def with_links(deps: Deps, notification: Notification) -> Notification:
    """The notification with a link for each of the people who may decide, while the card is open.

    The same notification always carries the same single-use links, however often it is delivered.
    """
    links = _configured(deps)
    if notification.kind == "settled" or links.people is None:
        return notification
    people = links.people(notification)
    if inspect.isawaitable(people):
        people = await people
    made: list[Json] = []
    for actor in people:
        link_id = hashlib.sha256(f"{notification.id}\n{actor.tenant}\n{actor.id}".encode()).hexdigest()
        try:
            link = await deps.store.read(
                lambda tx, actor=actor, link_id=link_id: _link(  # type: ignore[misc]
                    deps, links, tx, actor, notification.call_id, link_id
                )
            )
            made.append({"actor": actor.id, "url": url_of(links, link)})
        except SignoffError as error:
            _log.info("no link to card %s for %r: %s", notification.call_id, actor.id, error)
    return replace(notification, payload={**notification.payload, "links": made}) if made else notification


async def show(deps: Deps, token: str) -> Shown:
    """What the link's page shows. Changes nothing: mail scanners follow links.

    Raises:
        LinkInvalid: not a link of ours.
        LinkSpent: used, or too old.
        CardChanged: the card asks for something else by now.
        AlreadyDecided, Expired, RunNotActive, Forbidden: as `decide`.
    """
    link = read_token(_configured(deps), token)

    def look(tx: Tx) -> Shown:
        call = tx.call(link.call_id)
        if call is None:
            raise LinkInvalid
        if tx.link_used(link.id):
            raise LinkSpent("this link was used")
        _check(deps, tx, link.actor, call)
        if deps.clock.now() >= link.expires_at:
            raise LinkSpent(f"this link was good until {link.expires_at.isoformat(timespec='minutes')}")
        if call.shown_digest != link.digest or doubt_round(call) != link.round:
            raise CardChanged(call.id, call.shown_digest)
        return Shown(link=link, call=call, votes=len(tx.votes_of(call.id)))

    return await deps.store.read(look)


async def decide_by_link(deps: Deps, token: str, verb: Verb, *, reason: str | None = None) -> Decided:
    """Approve or reject as the link's person, through the one path of all decisions; uses the link up.

    Raises:
        LinkInvalid, LinkSpent: as `show`.
        SignoffError: as `decide`. A refused decision leaves the link as it was.
    """
    if verb not in (Verb.APPROVE, Verb.REJECT):
        raise InvalidInput("a link approves or rejects", field="decision")
    shown = await show(deps, token)
    link = shown.link
    request = DecisionRequest(
        call_id=link.call_id,
        verb=verb,
        via=VIA,
        reason=reason,
        digest=link.digest,
        link=LinkUse(id=link.id, round=link.round),
    )
    return await decide(deps, link.actor, request)


def _configured(deps: Deps) -> DecisionLinks:
    if deps.links is None:
        raise ConfigurationError("decision links are not set up: Signoff(links=DecisionLinks(...))")
    return deps.links


def _link(deps: Deps, links: DecisionLinks, tx: Tx, actor: Actor, call_id: str, link_id: str) -> Link:
    call = tx.call(call_id)
    if call is None:
        raise NotFound("call", call_id)
    _check(deps, tx, actor, call)
    until = deps.clock.now() + links.ttl
    return Link(
        id=link_id,
        call_id=call.id,
        digest=call.shown_digest,
        round=doubt_round(call),
        actor=actor,
        expires_at=until if call.expires_at is None else min(until, call.expires_at),
    )


def _check(deps: Deps, tx: Tx, actor: Actor, call: Call) -> None:
    if not may_decide(deps, actor, call):
        raise Forbidden("you are not an approver of this request")
    refusal = closed(tx, call, deps.clock.now())
    if refusal is not None:
        raise refusal
    if not call.may_requester and actor.id == call.actor_id and call.kind is ToolKind.ACTION:
        raise Forbidden("whoever asked for this cannot approve it")
