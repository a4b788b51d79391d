"""Decision links as text: what they say, and the signature that keeps it so."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json, JsonObject, decode, encode
from signoff.errors import ConfigurationError, InvalidInput, LinkInvalid
from signoff.ports.notifier import Notification

SECRET_CHARS_MIN = 32
TOKEN_CHARS_MAX = 4096

#: Keeps the signature from meaning anything else that might be signed with the same secret.
_PURPOSE = b"signoff decision link 1\n"

Directory: TypeAlias = Callable[[Notification], Iterable[Actor] | Awaitable[Iterable[Actor]]]
"""Who gets a link in a notification: the application's own people, with the roles and tenant they hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLinks:
    """How links are made.

    `secret` signs them: at least 32 random characters, the same in all processes; a new one ends all links.
    `base_url` is where people reach the router, prefix included (``https://desk.example/agent``). A link lives for
    `ttl`, and never longer than its card. Whoever holds a link acts as its person: send it to them alone.
    """

    secret: str = field(repr=False)
    base_url: str
    ttl: timedelta = timedelta(hours=24)
    people: Directory | None = None

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_CHARS_MIN:
            raise ConfigurationError(f"the secret of decision links has at least {SECRET_CHARS_MIN} characters")
        if not self.base_url.startswith(("https://", "http://")):
            raise ConfigurationError("the base_url of decision links begins with https://")
        if self.ttl <= timedelta():
            raise ConfigurationError("the ttl of decision links is above zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a link says: this person may decide this card as it was then. `round` counts how often it was in doubt."""

    id: str
    call_id: str
    digest: str | None
    round: int
    actor: Actor
    expires_at: datetime


def make_token(links: DecisionLinks, link: Link) -> str:
    """The link as URL-safe text, signed. Raises `InvalidInput` if it grows beyond 4,096 characters."""
    payload: JsonObject = {
        "id": link.id,
        "call": link.call_id,
        "digest": link.digest,
        "round": link.round,
        "actor": link.actor.id,
        "roles": [*sorted(link.actor.roles)],
        "tenant": link.actor.tenant,
        "until": int(link.expires_at.timestamp() * 1000),
    }
    body = _to_text(encode(payload).encode())
    token = f"{body}.{_to_text(_sign(links, body))}"
    if len(token) > TOKEN_CHARS_MAX:
        raise InvalidInput("the actor's id and roles do not fit into a link", field="actor")
    return token


def read_token(links: DecisionLinks, token: str) -> Link:
    """The inverse of `make_token`; says nothing about why a token is refused. Raises `LinkInvalid`."""
    body, _, signature = token.partition(".")
    if len(token) > TOKEN_CHARS_MAX or not hmac.compare_digest(_sign(links, body), _to_bytes(signature)):
        raise LinkInvalid
    match _decoded(body):
        case {
            "id": str(id_),
            "call": str(call_id),
            "digest": str() | None as digest,
            "round": int(round_),
            "actor": str(actor_id),
            "roles": list(roles),
            "tenant": str(tenant),
            "until": int(until),
        }:
            return Link(
                id=id_,
                call_id=call_id,
                digest=digest,
                round=round_,
                actor=Actor(id=actor_id, roles=frozenset(str(role) for role in roles), tenant=tenant),
                expires_at=datetime.fromtimestamp(until / 1000, UTC),
            )
        case _:  # signed by us, but by a version that wrote it otherwise
            raise LinkInvalid


def url_of(links: DecisionLinks, link: Link) -> str:
    """The link as people click it. Raises as `make_token`."""
    return f"{links.base_url.rstrip('/')}/links/{make_token(links, link)}"


def _sign(links: DecisionLinks, body: str) -> bytes:
    return hmac.new(links.secret.encode(), _PURPOSE + body.encode("utf-8", "replace"), hashlib.sha256).digest()


def _decoded(body: str) -> Json:
    try:
        return decode(_to_bytes(body).decode())
    except ValueError as error:
        raise LinkInvalid from error


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _to_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (ValueError, binascii.Error):
        return b""
