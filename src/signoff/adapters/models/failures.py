"""What went wrong at a provider, in one sentence that is safe to show."""

from collections.abc import Sequence

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from signoff.errors import ModelError

#: All that the model layer raises on purpose; anything else is a bug and stays as it is.
FAILURES = (ModelAPIError, UnexpectedModelBehavior, UserError)

_PASSING_STATUSES = frozenset({408, 409, 429})
_DETAIL_CHARACTERS_MAX = 300


def to_model_error(error: Exception, *, model: str, secrets: Sequence[str]) -> ModelError:
    """The failure as the port knows it.

    Args:
        error: one of `FAILURES`.
        model: the model's name as configured; starts the message.
        secrets: texts that must not appear in the message, such as the API key. A provider's own words are
            quoted, shortened, where they help; never for refused credentials, since some echo the key.
    """
    reason, transient = _reason(error)
    message = f"{model}: {reason}"
    for secret in secrets:
        message = message.replace(secret, "***")
    return ModelError(message, transient=transient)


def _reason(error: Exception) -> tuple[str, bool]:  # one line a cause reads best
    """The sentence, and whether a later attempt may succeed. The order goes from the special to the general."""
    match error:
        case ModelAuthenticationError():
            return f"the provider refused the credentials{_status(error)}; check the API key", False
        case ModelQuotaExceededError():
            return "the quota or credit of the provider's account is used up", False
        case ModelContextWindowExceededError():
            return "the conversation is longer than this model can read", False
        case ModelHTTPError(status_code=status):
            transient = status in _PASSING_STATUSES or status >= 500
            return f"the provider answered HTTP {status}{_detail(error)}", transient
        case ModelRequestTimeout() | ModelTimeoutError():
            return "the provider did not answer in time", True
        case ModelConnectionError(phase="connect" | "pool"):
            return "the provider cannot be reached", True
        case ModelConnectionError():
            return "the connection to the provider broke off", True
        case ModelRateLimitError() | ModelUnavailableError() | ModelServerError():
            return f"the provider is busy or failing{_detail(error)}", True
        case ModelRequestRejectedError():
            return f"the provider rejected the request{_detail(error)}", False
        case ModelAPIError():
            # Neither the client nor the provider put a blame on the request.
            return f"the provider failed{_detail(error) or f': {error.message}'}", True
        case ContentFilterError():
            return "the provider's content filter stopped the reply", False
        case UserError():
            return f"the request cannot be made: {error}", False
        case _:
            return "the reply could not be read", True


def _status(error: Exception) -> str:
    return f" (HTTP {error.status_code})" if isinstance(error, ModelHTTPError) else ""


def _detail(error: ModelAPIError) -> str:
    """The provider's own words, if it sent some."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    text = body.get("message") if isinstance(body, dict) else None
    if not isinstance(text, str) or not text.strip():
        return ""
    text = " ".join(text.split())
    return f": {text[:_DETAIL_CHARACTERS_MAX]}{'…' if len(text) > _DETAIL_CHARACTERS_MAX else ''}"
