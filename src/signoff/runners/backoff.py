"""How long to wait before a step is tried again, and whether to."""

from datetime import timedelta

from signoff.ports.engine import Retry


def is_transient(error: BaseException) -> bool:
    """Whether a later attempt may succeed; the error says so itself."""
    return getattr(error, "transient", False) is True


def wait_before(attempt: int, retry: Retry, jitter: float) -> timedelta:
    """The wait before `attempt` (2, 3, …): exponential, bounded, jittered to 50-100 % by `jitter` in [0, 1)."""
    full = min(retry.backoff * retry.factor ** (attempt - 2), retry.backoff_max)
    return full * (0.5 + jitter / 2)
