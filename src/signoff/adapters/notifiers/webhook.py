"""Notifications as signed HTTP requests, after the Standard Webhooks specification."""

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property

from signoff.domain.frame import instant
from signoff.domain.jsonvalue import JsonObject, encode
from signoff.errors import ConfigurationError
from signoff.ports.clock import Clock
from signoff.ports.notifier import Notification

try:
    import httpx
except ImportError as error:  # pragma: no cover
    raise ConfigurationError('webhooks need an extra: pip install "signoff[webhook]"') from error

SECRET_BYTES_MIN = 24
SECRET_PREFIX = "whsec_"  # noqa: S105  # the specification's prefix, not a secret


class WebhookFailed(Exception):
    """The receiver did not take it. The text names no address: those of webhooks often hold a secret."""


class WebhookNotifier:
    """Posts each notification to `url`, signed so that the receiver can tell it is ours, fresh and untouched.

    The body is ``{"type": "approval.<kind>", "timestamp", "data"}``; headers are ``webhook-id`` (the same on every
    attempt: receivers drop repeats by it), ``webhook-timestamp`` (seconds) and ``webhook-signature``
    (``v1,<base64 HMAC-SHA256 of "id.timestamp.body">``). Any status from 200 to 299 means taken; redirects are
    not followed.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str,
        clock: Clock | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        """
        Args:
            url: where to post.
            secret: ``whsec_<base64>``, or any text of at least 24 bytes.
            clock: for tests.
            headers: sent along, e.g. an ``authorization``.
            timeout: for connecting, and for each part of the exchange.

        Raises:
            ConfigurationError: not an HTTP URL, or the secret is too short.
        """
        if not url.startswith(("https://", "http://")):
            raise ConfigurationError("a webhook's url begins with https:// (or http:// inside your own network)")
        self._url = url
        self._key = _key(secret)
        self._clock = clock or _system_clock()
        self._headers = dict(headers or {})
        self._timeout_s = timeout.total_seconds()

    async def notify(self, notification: Notification) -> None:
        """See `ports.notifier.Notifier`. Raises `WebhookFailed`."""
        now = self._clock.now()
        body = encode(_body(notification, at=instant(now)))
        timestamp = str(int(now.timestamp()))
        headers = {
            **self._headers,
            "content-type": "application/json",
            "webhook-id": notification.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": sign(self._key, id_=notification.id, timestamp=timestamp, body=body),
        }
        try:
            async with httpx.AsyncClient(verify=self._tls, timeout=self._timeout_s) as client:
                response = await client.post(self._url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise WebhookFailed(type(error).__name__) from None
        if not response.is_success:
            raise WebhookFailed(f"the receiver answered {response.status_code}")

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        # Reading the certificates takes a while; once is enough.
        return httpx.create_ssl_context()


def sign(key: bytes, *, id_: str, timestamp: str, body: str) -> str:
    """The ``webhook-signature`` of a request."""
    mac = hmac.new(key, f"{id_}.{timestamp}.{body}".encode(), hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


def _body(notification: Notification, *, at: str) -> JsonObject:
    data: JsonObject = {"id": notification.id, "tenant": notification.tenant, **notification.payload}
    return {"type": f"approval.{notification.kind}", "timestamp": at, "data": data}


def _key(secret: str) -> bytes:
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error as error:
            raise ConfigurationError(f"a webhook secret after {SECRET_PREFIX!r} is base64") from error
    if len(key) < SECRET_BYTES_MIN:
        raise ConfigurationError(f"a webhook secret has at least {SECRET_BYTES_MIN} bytes")
    return key


def _system_clock() -> Clock:
    from signoff.adapters.system import SystemClock

    return SystemClock()
