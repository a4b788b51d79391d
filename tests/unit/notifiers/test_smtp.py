"""Mail, through a real SMTP server on this machine."""

import asyncio
import smtplib
from collections.abc import AsyncIterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from signoff.adapters.notifiers.smtp import SmtpNotifier
from signoff.errors import ConfigurationError
from signoff.ports.notifier import Notification
from signoff.testing.clock import FakeClock

TOLD = Notification(
    id="call_1:requested:SmtpNotifier",
    kind="requested",
    tenant="acme",
    call_id="call_1",
    payload={
        "toolCallId": "call_1",
        "toolName": "refund",
        "requester": "ana",
        "approver": "finance",
        "title": "Refund 5 €\r\nBcc: everyone@example.com",
        "reason": "money \u202eleaves",
        "expiresAt": "2026-01-01T00:15:00.000Z",
        "links": [
            {"actor": "bo", "url": "https://desk.example/agent/links/bo"},
            {"actor": "cy", "url": "https://desk.example/agent/links/cy"},
            {"actor": "nobody", "url": "https://desk.example/agent/links/nobody"},
        ],
    },
)
ADDRESSES = {"bo": "bo@example.com", "cy": "cy@example.com"}


class Mailbox:
    """An SMTP server that keeps what it gets; `refuse` makes it say "later"."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        self.refuse = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.refuse:
            return "451 later"
        mail = message_from_bytes(envelope.content, policy=default)
        self.mails.append((envelope.rcpt_tos, mail))
        return "250 OK"


@pytest.fixture
async def mailbox() -> AsyncIterator[tuple[Mailbox, int]]:
    box = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box, hostname="test"), "127.0.0.1", 0)
    yield box, server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


def notifier(port: int, **options: Any) -> SmtpNotifier:
    return SmtpNotifier(
        "127.0.0.1", port=port, sender="signoff@example.com", security="none", clock=FakeClock(), **options
    )


async def test_everybody_gets_a_mail_and_only_their_own_link(mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    await notifier(port, to=["team@example.com"], address_of=ADDRESSES.get).notify(TOLD)

    texts = {to[0]: mail.get_content() for to, mail in box.mails}
    assert list(texts) == ["team@example.com", "bo@example.com", "cy@example.com"]
    assert [len(to) for to, _ in box.mails] == [1, 1, 1]
    assert "/links/" not in texts["team@example.com"]
    for name in ("bo", "cy"):
        assert texts[f"{name}@example.com"].count("/links/") == 1
        assert f"https://desk.example/agent/links/{name}\r\n" in texts[f"{name}@example.com"]
    assert "Why you are asked: money \\u202eleaves" in texts["bo@example.com"]
    assert "Until: 2026-01-01T00:15:00.000Z" in texts["bo@example.com"]


async def test_no_text_becomes_a_header(mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    await notifier(port, to=["team@example.com"]).notify(TOLD)

    [(to, mail)] = box.mails
    assert to == ["team@example.com"]
    assert mail["Bcc"] is None
    assert mail["Subject"] == "Your approval is asked for: Refund 5 €\\r\\nBcc: everyone@example.com"
    assert mail["Auto-Submitted"] == "auto-generated"


async def test_a_repeat_has_the_same_message_id(mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    sender = notifier(port, to=["team@example.com", "other@example.com"])
    await sender.notify(TOLD)
    await sender.notify(TOLD)

    ids = [mail["Message-ID"] for _, mail in box.mails]
    assert ids[:2] == ids[2:]
    assert ids[0] != ids[1]


async def test_a_server_that_says_later_is_a_failure(mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    box.refuse = True
    with pytest.raises(smtplib.SMTPDataError):
        await notifier(port, to=["team@example.com"]).notify(TOLD)


async def test_a_server_without_encryption_is_not_talked_to_in_the_clear(mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    sender = SmtpNotifier("127.0.0.1", port=port, sender="signoff@example.com", to=["team@example.com"])
    with pytest.raises(smtplib.SMTPNotSupportedError):
        await sender.notify(TOLD)
    assert box.mails == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say whom to mail"),
        ({"to": "a@b"}, "say whom to mail"),
        ({"to": ["a@b"], "security": "none", "username": "u"}, "in the clear"),
    ],
)
def test_what_cannot_work_is_said_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SmtpNotifier("mail", sender="a@b", **options)
