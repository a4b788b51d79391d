"""A tool's own check of a call: `prepare` before the card, `execute_check` right before running."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, TypeVar

from signoff.domain.frame import without_none
from signoff.domain.jsonable import jsonable
from signoff.domain.jsonvalue import JsonObject, as_object
from signoff.errors import ControlFlow, NotJson, TooLarge, control_flow
from signoff.ports.clock import Clock
from signoff.ports.deadline import LimitPassed, run_within

B = TypeVar("B")
C = TypeVar("C")

TARGET_BYTES_MAX = 16 * 1024
REASON_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The card's wording for this one call, e.g. ``title="Refund order A1", verb="Refund"``.

    `title` has at most 200 characters, `verb` (the button) 40, `detail` 2,000.
    """

    title: str
    verb: str
    detail: str | None = None

    def as_json(self) -> JsonObject:
        """``{title, verb, detail?}``, as on the wire."""
        return without_none(title=self.title, verb=self.verb, detail=self.detail)

    def problem(self) -> str | None:
        """What is wrong with the wording, if anything."""
        for name, text, chars_max in (
            ("title", self.title, 200),
            ("verb", self.verb, 40),
            ("detail", self.detail, 2000),
        ):
            if text is None and name == "detail":
                continue
            if not isinstance(text, str) or not text.strip() or len(text) > chars_max:
                return f"the confirmation's {name} must be a text of 1-{chars_max} characters"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Nothing speaks against the call. `target` is what the card points at (a JSON object for front ends)."""

    confirmation: Confirmation | None = None
    target: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not run; `reason` is told to the model and shown in the thread."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """What the call wants is so already: it is settled with `output` and nothing runs."""

    output: object = None


Preflight: TypeAlias = Ready | Denied | Done


async def run_preflight(
    hook: Callable[[B, C], Coroutine[object, object, object]] | None,
    bound: B,
    ctx: C,
    *,
    clock: Clock,
    timeout: timedelta,
    output_bytes_max: int,
) -> Preflight:
    """Ask the hook; no hook is ready. Doubt denies: a hook that raises, hangs or answers nonsense stops the call.

    `Done.output` comes back as JSON.

    Raises:
        ControlFlow: whatever unwinds the run, except a question to the user, which a check cannot ask.
    """
    if hook is None:
        return Ready()
    try:
        answer = await run_within(hook(bound, ctx), limit=timeout, clock=clock)
    except LimitPassed as error:
        return _in_doubt(str(error))
    except Exception as error:  # noqa: BLE001  # a check that breaks says no
        return _in_doubt(f"{type(error).__name__}: {error}")
    except ControlFlow as error:
        if control_flow(error) == "needs_answers":
            return _in_doubt("a check cannot ask the user")
        raise
    return _checked(answer, output_bytes_max)


def _checked(answer: object, output_bytes_max: int) -> Preflight:
    try:
        match answer:
            case Ready(confirmation=None | Confirmation() as confirmation, target=target):
                if confirmation is not None and (problem := confirmation.problem()):
                    return _in_doubt(problem)
                if target is None:
                    return answer
                plain = as_object(jsonable(target, what="the target", bytes_max=TARGET_BYTES_MAX), what="the target")
                return Ready(confirmation=confirmation, target=plain)
            case Denied(reason=str() as reason):
                return Denied(reason[:REASON_CHARS_MAX] or "the tool's own check refused it")
            case Done(output=output):
                return Done(jsonable(output, what="the output of the check", bytes_max=output_bytes_max))
    except (NotJson, TooLarge) as error:
        return _in_doubt(str(error))
    return _in_doubt(f"it answered a {type(answer).__name__}, not Ready, Denied or Done")


def _in_doubt(why: str) -> Denied:
    return Denied(f"not run: the tool's own check failed ({why})"[:REASON_CHARS_MAX])
