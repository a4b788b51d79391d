"""What came of a call, as the journal carries it and as the thread keeps it."""

from dataclasses import dataclass
from typing import ClassVar

from signoff.domain.jsonvalue import Json, JsonObject, as_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The one outcome of a call. `checkpoint` is the prefix of the name under which it is recorded."""

    checkpoint: ClassVar[str] = "persist:toolexec"

    @staticmethod
    def from_json(value: Json) -> "Outcome":
        """What the "tools" group journaled: completed, failed, or asked."""
        outcome = as_object(value, what="a tool's outcome")
        match outcome:
            case {"status": "completed", "output": output}:
                started = outcome.get("startedAt")
                return Completed(output=output, started_at=None if started is None else str(started))
            case {"status": "asked", "request": dict(request), "index": int(index)}:
                return Questioned(request=request, index=index)
            case _:
                return Failed(
                    error=str(outcome.get("error", "the call failed")),
                    mismatch=outcome.get("mismatch") is True,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(Outcome):
    """The tool ran (or, in doubt, is known to have run) and this is its output."""

    output: Json
    started_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Outcome):
    """The call did not succeed. `mismatch`: what would have run is not what was approved."""

    checkpoint: ClassVar[str] = "persist:toolfail"
    error: str
    mismatch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined(Outcome):
    """A person said no, or gave an action up whose outcome nobody knows."""

    checkpoint: ClassVar[str] = "persist:toolreject"
    reason: str | None

    @classmethod
    def from_payload(cls, payload: Json) -> "Declined":
        """The decision as the signal carried it."""
        reason = payload.get("reason") if isinstance(payload, dict) else None
        return cls(reason=None if reason is None else str(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredUnanswered(Outcome):
    """Nobody answered before the deadline."""

    checkpoint: ClassVar[str] = "persist:toolreject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Outcome):
    """The answers to a question set (WIRE 6.4); `skipped` counts as not answered."""

    answers: JsonObject
    skipped: bool

    @classmethod
    def from_payload(cls, payload: Json) -> "Answered":
        """The outcome as the signal carried it: validated at the door."""
        outcome = as_object(as_object(payload, what="an answer").get("outcome"), what="an answer's outcome")
        return cls(answers=outcome, skipped=outcome.get("skipped") is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Questioned(Outcome):
    """The tool asks the user in the middle of its work."""

    request: JsonObject
    index: int
