"""Webhooks: what a receiver gets, and what counts as taken."""

import json
from datetime import timedelta

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from signoff.adapters.notifiers.webhook import WebhookFailed, WebhookNotifier
from signoff.errors import ConfigurationError
from signoff.ports.notifier import Notification
from signoff.testing.clock import FakeClock
from tests.unit.models.http_server import Handler, Request, Response, running_server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOLD = Notification(
    id="call_1:requested:WebhookNotifier",
    kind="requested",
    tenant="acme",
    call_id="call_1",
    payload={"toolCallId": "call_1", "toolName": "refund", "title": "Refund 5 € \u202e"},
)


def answers(status: int, **headers: str) -> Handler:
    async def handle(request: Request, response: Response) -> None:
        await response.json(status, {}, headers)

    return handle


def raw(request: Request) -> str:
    return json.dumps(request.body, separators=(",", ":"))


async def test_a_receiver_verifies_it_with_the_specifications_own_library() -> None:
    async with running_server() as receiver:
        receiver.handlers = [answers(204)]
        await WebhookNotifier(f"{receiver.url}/hook", secret=SECRET, headers={"authorization": "Bearer x"}).notify(TOLD)

    [request] = receiver.requests
    assert request.path == "/hook"
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["webhook-id"] == TOLD.id
    data = Webhook(SECRET).verify(raw(request), request.headers)
    assert data["type"] == "approval.requested"
    assert data["data"] == {"id": TOLD.id, "tenant": "acme", **TOLD.payload}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(raw(request).replace("refund", "refunds"), request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(raw(request), {**request.headers, "webhook-id": "another"})


async def test_the_time_is_signed_and_new_on_each_attempt() -> None:
    clock = FakeClock()
    async with running_server() as receiver:
        receiver.handlers = [answers(200)]
        notifier = WebhookNotifier(receiver.url, secret="s" * 24, clock=clock)
        await notifier.notify(TOLD)
        clock.advance(timedelta(hours=1))
        await notifier.notify(TOLD)

    first, second = receiver.requests
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) == 3600
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


@pytest.mark.parametrize("status", [301, 400, 404, 410, 429, 500])
async def test_anything_but_success_is_tried_again(status: int) -> None:
    async with running_server() as receiver:
        receiver.handlers = [answers(status, location=f"{receiver.url}/elsewhere")]
        with pytest.raises(WebhookFailed, match=f"the receiver answered {status}"):
            await WebhookNotifier(receiver.url, secret=SECRET).notify(TOLD)
        assert len(receiver.requests) == 1, "redirects are not followed: the signature is for this receiver"


async def test_a_receiver_that_is_gone_or_breaks_off_is_told_without_its_address() -> None:
    async def drop(request: Request, response: Response) -> None:
        response.drop()

    async with running_server() as receiver:
        receiver.handlers = [drop]
        with pytest.raises(WebhookFailed) as broken:
            await WebhookNotifier(f"{receiver.url}/token-abc", secret=SECRET).notify(TOLD)
    with pytest.raises(WebhookFailed) as gone:
        await WebhookNotifier(f"{receiver.url}/token-abc", secret=SECRET).notify(TOLD)
    for failed in (broken, gone):
        assert "token-abc" not in str(failed.value)
        assert failed.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "secret", "message"),
    [
        ("ftp://x", SECRET, "begins with https"),
        ("https://x", "short", "at least 24 bytes"),
        ("https://x", "whsec_c2hvcnQ=", "at least 24 bytes"),
        ("https://x", "whsec_not base64", "base64"),
    ],
)
def test_what_cannot_work_is_said_at_once(url: str, secret: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WebhookNotifier(url, secret=secret)
