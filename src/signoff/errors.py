"""Every error a caller can meet. One root; each carries what a handler needs as attributes."""

from datetime import datetime
from typing import ClassVar


class SignoffError(Exception):
    """The root of signoff's errors.

    `code` is stable and machine-readable; the text is for people.
    """

    code: ClassVar[str] = "error"


# --- what a programmer sees at start-up ---------------------------------------------------------------------


class ConfigurationError(SignoffError):
    """Something about agents, tools or settings cannot work; raised at start, naming what and how to fix it."""

    code = "configuration"


class EngineUnavailable(SignoffError):
    """The durable engine cannot start, and `durable="strict"` forbids to run without it."""

    code = "engine_unavailable"


# --- bad input ----------------------------------------------------------------------------------------------


class InvalidInput(SignoffError):
    """Input was refused before anything happened. `field` names it, the text says how to fix it."""

    code = "invalid_input"

    def __init__(self, message: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.specific_code = code


class NotJson(SignoffError):
    """A value cannot be written as JSON."""

    code = "not_json"

    def __init__(self, *, what: str, reason: str) -> None:
        super().__init__(f"{what} cannot be stored: {reason}")
        self.what = what
        self.reason = reason


class TooLarge(SignoffError):
    """A value is over its bound. Sizes are bytes of its JSON text."""

    code = "too_large"

    def __init__(self, *, what: str, size: int, size_max: int) -> None:
        super().__init__(f"{what} has {size} bytes; at most {size_max} are allowed")
        self.what = what
        self.size = size
        self.size_max = size_max


# --- identity and ownership ---------------------------------------------------------------------------------


class Unauthenticated(SignoffError):
    """Nobody acts: there is no actor resolver, or it found no actor."""

    code = "unauthenticated"

    def __init__(self, message: str = "no actor: sign in first") -> None:
        super().__init__(message)


class Forbidden(SignoffError):
    """The actor may not do this."""

    code = "forbidden"


class NotFound(SignoffError):
    """No such thread, run, call, message, agent or tool (or it was deleted)."""

    code = "not_found"

    def __init__(self, kind: str, id_: str) -> None:
        super().__init__(f"there is no {kind} {id_!r}")
        self.kind = kind
        self.id = id_


# --- conflicts ----------------------------------------------------------------------------------------------


class RunActive(SignoffError):
    """The thread already has an active run."""

    code = "run_active"

    def __init__(self, thread_id: str, run_id: str | None = None) -> None:
        super().__init__("this conversation is still busy with the previous message")
        self.thread_id = thread_id
        self.run_id = run_id


class RunNotActive(SignoffError):
    """The run that asked has ended, failed or was cancelled; its card can no longer be decided."""

    code = "run_not_active"

    def __init__(self, run_id: str) -> None:
        super().__init__("the run that asked has already ended")
        self.run_id = run_id


class AlreadyDecided(SignoffError):
    """Another answer stands; nothing was written. `status` is the call's status now."""

    code = "already_decided"

    def __init__(self, call_id: str, *, status: str, decided_by: str | None) -> None:
        by = f" by {decided_by}" if decided_by else ""
        super().__init__(f"this was already decided{by}: {status}")
        self.call_id = call_id
        self.status = status
        self.decided_by = decided_by


class Expired(SignoffError):
    """The card's deadline has passed. `expires_at` is aware UTC."""

    code = "expired"

    def __init__(self, call_id: str, expires_at: datetime) -> None:
        super().__init__(f"this request expired at {expires_at.isoformat(timespec='seconds')}")
        self.call_id = call_id
        self.expires_at = expires_at


class CardChanged(SignoffError):
    """The decision echoes a digest that is not the card's: the person saw something else."""

    code = "card_changed"

    def __init__(self, call_id: str, digest: str | None) -> None:
        super().__init__("what was shown is not what would run; reload and look again")
        self.call_id = call_id
        self.digest = digest


class WrongKind(SignoffError):
    """This card is answered by another route (a question by answer or skip, an action by approve or reject)."""

    code = "wrong_kind"


class LinkInvalid(SignoffError):
    """This is no decision link of ours: made up, changed, cut short, or signed with another secret."""

    code = "link_invalid"

    def __init__(self) -> None:
        super().__init__("this link is not valid; copy the whole of it, or ask for a new one")


class LinkSpent(SignoffError):
    """The decision link was used, or is too old."""

    code = "link_spent"


class IdempotencyMismatch(SignoffError):
    """The idempotency key was used before with another body."""

    code = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__("this Idempotency-Key was used before with another body")
        self.key = key


class QuotaExceeded(SignoffError):
    """The actor's quota for `period` ("day" or "month") is spent."""

    code = "quota_exceeded"

    def __init__(self, *, period: str, message: str | None = None) -> None:
        super().__init__(message or f"the quota for this {period} is used up")
        self.period = period


class StreamReset(SignoffError):
    """The reader's cursor lies in frames that were withdrawn or trimmed: re-read the thread, attach afresh."""

    code = "stream_reset"

    def __init__(self, stream_id: str) -> None:
        super().__init__("this part of the stream was withdrawn; reload the conversation")
        self.stream_id = stream_id


# --- models -------------------------------------------------------------------------------------------------


class ModelError(SignoffError):
    """A model call failed. `transient` says whether a later attempt may succeed."""

    code = "run_failed"

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class ModelNoOutput(ModelError):
    """The model ended its turn with neither text nor a call."""

    code = "model_no_output"


# --- the engine ---------------------------------------------------------------------------------------------


class SignalTimeout(SignoffError):
    """The wait's deadline passed before a signal came. An ordinary exception: the body goes on from it."""

    code = "signal_timeout"

    def __init__(self, name: str) -> None:
        super().__init__(f"no signal {name!r} came in time")
        self.name = name


class StepFailed(SignoffError):
    """A dispatched step or a child failed. The same error, text and type name on the first run and on a replay.

    `error_type` is the class name of the original; `error_code` its stable code, if it had one.
    """

    code = "run_failed"

    def __init__(self, name: str, *, error_type: str, message: str, error_code: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.error_type = error_type
        self.error_code = error_code


class InDoubt(SignoffError):
    """A step was started, the process died, and nobody knows whether its effect happened.

    `started_at` is ISO-8601 UTC; `attempt` counts from 1.
    """

    code = "in_doubt"

    def __init__(self, name: str, *, started_at: str, attempt: int) -> None:
        super().__init__(f"{name!r} was started at {started_at} and its outcome is unknown")
        self.name = name
        self.started_at = started_at
        self.attempt = attempt


class ChildCancelled(SignoffError):
    """A child run was cancelled; an outcome of the parent's call, not the parent's own cancellation."""

    code = "cancelled"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the delegated run {run_id!r} was cancelled")
        self.run_id = run_id


class UnknownWorkflow(SignoffError):
    """No body is registered under this name; refused before a row exists."""

    code = "unknown_workflow"


class PositionsExhausted(SignoffError):
    """A branch of `parallel` asked for more positions than it has. Fewer, coarser checkpoints, or a child run."""

    code = "positions_exhausted"

    def __init__(self, run_id: str, positions: int) -> None:
        super().__init__(
            f"a parallel branch of run {run_id!r} has used up its {positions} positions; "
            "a branch cannot hold a parallel of its own: put it into a child run"
        )
        self.run_id = run_id
        self.positions = positions


class StoreBusy(SignoffError):
    """The database refused a write for now (locked, deadlock, serialization failure, disk full)."""

    code = "store_busy"


# --- control flow: never caught by `except Exception` -------------------------------------------------------


class ControlFlow(BaseException):
    """Unwinds a run's body. Recognised by its marker, not its class: module copies must not break it.

    Not an error: no tool's or loop's `except Exception` can eat it, and nothing on its way may write.
    """

    signoff_control_flow: ClassVar[str] = "control"


class RunSuspended(ControlFlow):
    """Unwinds a run that leaves memory to wait."""

    signoff_control_flow = "suspended"


class RunCancelled(ControlFlow):
    """Unwinds a run that was cancelled."""

    signoff_control_flow = "cancelled"


class ContinueAsNew(ControlFlow):
    """Ends this run and starts its successor with `input`."""

    signoff_control_flow = "continue_as_new"

    def __init__(self, input_: object) -> None:
        super().__init__("continue as new")
        self.input = input_


class LeaseLost(ControlFlow):
    """Another worker drives the run now; this one must not write any more."""

    signoff_control_flow = "lease_lost"


class ReplayDiverged(ControlFlow):
    """The body asked for something else than the journal holds at this position.

    Carries the run, the position, what the journal holds (`expected`) and what the body asked (`found`),
    each as ``kind:name``.
    """

    signoff_control_flow = "diverged"

    def __init__(self, *, run_id: str, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"run {run_id!r} diverged from its journal at position {position}: "
            f"the journal holds {expected}, the code asks for {found}"
        )
        self.run_id = run_id
        self.position = position
        self.expected = expected
        self.found = found


def control_flow(error: BaseException) -> str | None:
    """The marker of a control-flow exception, or None for anything else."""
    marker = getattr(error, "signoff_control_flow", None)
    return marker if isinstance(marker, str) else None


#: Of several control flows in one batch the first of these wins; ordinary errors come after them.
_GRAVEST_FIRST = ("diverged", "lease_lost", "released", "cancelled", "continue_as_new", "suspended")


def gravity(error: BaseException) -> int:
    """The rank of one error of a batch: of several the lowest propagates."""
    marker = control_flow(error)
    return _GRAVEST_FIRST.index(marker) if marker in _GRAVEST_FIRST else len(_GRAVEST_FIRST)


def is_transient(error: BaseException) -> bool:
    """Whether a later attempt may succeed; the error says so itself."""
    return getattr(error, "transient", False) is True


def is_replay_integrity_error(error: BaseException) -> bool:
    """Whether the engine refused a position. Such an error must pass every handler untouched.

    For those who wrap the runner: answering it with more checkpoints would bury the real disagreement.
    """
    return control_flow(error) == "diverged"
