"""The stable code of a failed run (WIRE section 4)."""

from signoff.errors import SignoffError, StepFailed, is_replay_integrity_error

_ON_WIRE = frozenset(
    {
        "quota_exceeded",
        "output_rejected",
        "structured_output_invalid",
        "replay_diverged",
        "model_no_output",
        "run_failed",
    }
)


def wire_code(error: BaseException | None) -> str:
    """The code that clients are told; `run_failed` for anything without one of its own."""
    if error is not None and is_replay_integrity_error(error):
        return "replay_diverged"
    code = error.error_code if isinstance(error, StepFailed) else getattr(error, "code", None)
    return code if isinstance(error, SignoffError) and code in _ON_WIRE else "run_failed"
