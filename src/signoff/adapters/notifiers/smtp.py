"""Notifications as mail."""

import asyncio
import hashlib
import smtplib
import ssl
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from enum import StrEnum

from signoff.adapters.system import SystemClock
from signoff.domain.jsonvalue import Json
from signoff.domain.safetext import visible
from signoff.errors import ConfigurationError
from signoff.ports.clock import Clock
from signoff.ports.notifier import Notification


class Security(StrEnum):
    """How the connection is protected: upgraded, from the start, or not at all (a relay on the same host)."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class SmtpNotifier:
    """Mails each notification: to fixed addresses, and, with decision links, to each person their own.

    A link is only ever in the mail of the person it is for. ``Message-ID`` is the same on every attempt.
    """

    def __init__(
        self,
        host: str,
        *,
        sender: str,
        to: Sequence[str] = (),
        address_of: Callable[[str], str | None] | None = None,
        port: int | None = None,
        security: Security | str = Security.STARTTLS,
        username: str | None = None,
        password: str | None = None,
        clock: Clock | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        """
        Args:
            host, port: the mail server; default port: 587, with `security` "tls" 465, with "none" 25.
            sender: the ``From`` address.
            to: addresses that get every notification, without links.
            address_of: the address of a person who has a decision link, by actor id; None: not mailed.
            security: "starttls", "tls" or "none". Certificates are checked.
            username, password: if the server wants them.
            clock: for tests.
            timeout: for each exchange with the server.

        Raises:
            ConfigurationError: nobody would get a mail, or a password would travel in the clear.
        """
        self._security = Security(security)
        if isinstance(to, str) or (not to and address_of is None):
            raise ConfigurationError("say whom to mail: to=[addresses], address_of=…, or both")
        if username is not None and self._security is Security.NONE:
            raise ConfigurationError("a password must not travel in the clear: use security='starttls' or 'tls'")
        self._host = host
        self._port = port or {Security.STARTTLS: 587, Security.TLS: 465, Security.NONE: 25}[self._security]
        self._sender = sender
        self._to = tuple(to)
        self._address_of = address_of
        self._login = None if username is None else (username, password or "")
        self._clock = clock or SystemClock()
        self._timeout_s = timeout.total_seconds()

    async def notify(self, notification: Notification) -> None:
        """See `ports.notifier.Notifier`. Raises `smtplib.SMTPException` or `OSError`."""
        mails = list(self._mails(notification))
        if mails:
            await asyncio.to_thread(self._send, mails)

    def _mails(self, notification: Notification) -> Iterator[EmailMessage]:
        for address in self._to:
            yield self._mail(notification, address, link=None)
        for actor_id, url in _links(notification.payload.get("links")):
            address_of_actor = None if self._address_of is None else self._address_of(actor_id)
            if address_of_actor is not None:
                yield self._mail(notification, address_of_actor, link=url)

    def _mail(self, notification: Notification, address: str, *, link: str | None) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self._sender
        mail["To"] = address
        mail["Subject"] = _subject(notification)
        mail["Date"] = format_datetime(self._clock.now())
        who = hashlib.sha256(f"{notification.id}\n{address}".encode()).hexdigest()
        mail["Message-ID"] = f"<{who[:40]}@signoff.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content("\n".join(_lines(notification, link)) + "\n")
        return mail

    def _send(self, mails: Sequence[EmailMessage]) -> None:
        with self._connect() as server:
            for mail in mails:
                server.send_message(mail)

    def _connect(self) -> smtplib.SMTP:
        if self._security is Security.TLS:
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=self._timeout_s)
        try:
            if self._security is Security.STARTTLS:
                server.starttls(context=ssl.create_default_context())
            if self._login is not None:
                server.login(*self._login)
        except BaseException:
            server.close()
            raise
        return server


_SUBJECTS = {
    "requested": "Your approval is asked for",
    "reminded": "Reminder: your approval is asked for",
    "widened": "Nobody answered yet: your approval is asked for",
    "settled": "Settled",
}

_FACTS = (
    ("Tool", "toolName"),
    ("Asked by", "requester"),
    ("Agent", "agent"),
    ("Who approves", "approver"),
    ("Why you are asked", "reason"),
    ("Until", "expiresAt"),
    ("Outcome", "status"),
    ("Request", "toolCallId"),
)


def _subject(notification: Notification) -> str:
    what = notification.payload.get("title") or notification.payload.get("toolName") or notification.call_id
    return visible(f"{_SUBJECTS.get(notification.kind, notification.kind)}: {what}")[:200]


def _lines(notification: Notification, link: str | None) -> Iterator[str]:
    yield _subject(notification)
    yield ""
    for label, name in _FACTS:
        value = notification.payload.get(name)
        if isinstance(value, str):
            yield f"{label}: {visible(value)}"
    if notification.payload.get("inDoubt") is not None:
        yield "It was approved and started, and nobody knows whether it happened. Look before you answer."
    if link is not None:
        yield ""
        yield "See what would run, and decide (the link is yours alone and works once):"
        yield link


def _links(links: Json) -> Iterator[tuple[str, str]]:
    for item in links if isinstance(links, list) else []:
        if isinstance(item, dict):
            yield str(item.get("actor")), str(item.get("url"))
