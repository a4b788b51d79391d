"""Run one admitted call and say what came of it. Everything a user's function may do ends in an outcome."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import TypeAlias

from signoff.domain.call import ToolKind
from signoff.domain.jsonable import jsonable
from signoff.domain.jsonvalue import Json, JsonObject, clean_text
from signoff.errors import NotJson, TooLarge, control_flow
from signoff.ports.clock import Clock
from signoff.ports.deadline import LimitPassed, StoppedItself, run_within
from signoff.tools.context import NeedsAnswers, ToolContext
from signoff.tools.definition import Tool
from signoff.tools.signature import Bound

ERROR_CHARS_MAX = 2000
RETRIES_MAX = 3
RETRY_BACKOFF = timedelta(milliseconds=50)

#: PostgreSQL's serialization failure and deadlock: the transaction was rolled back, a new attempt may succeed.
_ROLLED_BACK = frozenset({"40001", "40P01"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The tool returned; `output` is what it returned, as JSON."""

    output: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The tool did not return anything that can be kept. `error` is for the model and the thread.

    `error_type` is the class name of what was raised; ``"UnusableOutput"``: the tool **ran**, but what it
    returned cannot be kept; ``"Timeout"``: it may have had its effect.
    """

    error: str
    error_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The tool asks the user; run it again with the outcomes of question sets 0 to `index` in its context."""

    request: JsonObject
    index: int


ToolOutcome: TypeAlias = Succeeded | Failed | Asked

OnRetry: TypeAlias = Callable[[int, Exception], None]
"""Told before each retry in place: which one it is (from 1), and what failed."""


def _unheard(_retry: int, _error: Exception) -> None:
    """Nobody listens."""


async def invoke(
    tool: Tool,
    bound: Bound,
    ctx: ToolContext,
    *,
    clock: Clock,
    output_bytes_max: int,
    default_timeout: timedelta | None = None,
    on_retry: OnRetry = _unheard,
) -> ToolOutcome:
    """Run the tool once, within its limit (`default_timeout`, if it has none of its own).

    A transient error (a deadlock or serialization failure of a database, or one with `transient = True`) is
    tried again in place, up to three times, for reads and idempotent actions. Other actions are not: the
    database undid its transaction, but nobody undid what the function did before it.

    Raises:
        ControlFlow: whatever unwinds the run, except a question to the user.
        CancelledError: our caller was cancelled. A tool that cancels itself has failed.
    """
    try:
        limit = tool.timeout or default_timeout
        returned = await run_within(_with_retries(tool, bound, ctx, clock, on_retry), limit=limit, clock=clock)
    except LimitPassed as error:
        return _timed_out(tool, error)
    except StoppedItself as error:
        return Failed(error=f"the tool stopped before it was done: {error}", error_type="Cancelled")
    except Exception as error:  # noqa: BLE001  # whatever a tool raises is an outcome of its call
        return Failed(error=_text(error), error_type=type(error).__name__)
    except BaseException as error:  # noqa: BLE001  # raised again there, unless it asks
        return _asked(_unwrapped(error))
    try:
        what = f"the output of tool {tool.name!r}"
        return Succeeded(output=jsonable(returned, what=what, bytes_max=output_bytes_max))
    except (NotJson, TooLarge) as error:
        return _unusable(tool, str(error))
    except Exception as error:  # noqa: BLE001  # a serializer of the user's own models broke
        return _unusable(tool, _text(error))


async def _with_retries(tool: Tool, bound: Bound, ctx: ToolContext, clock: Clock, on_retry: OnRetry) -> object:
    retries = RETRIES_MAX if tool.kind is ToolKind.READ or tool.idempotent else 0
    for retry in range(1, retries + 1):
        try:
            return await tool.invoke(bound, ctx)
        except Exception as error:
            if not _is_transient(error):
                raise
            on_retry(retry, error)
        await clock.sleep_until(clock.now() + RETRY_BACKOFF * 2 ** (retry - 1))
    return await tool.invoke(bound, ctx)


def _is_transient(error: BaseException | None) -> bool:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        # SQLAlchemy keeps the driver's error in `orig`; drivers spell the code `sqlstate` or `pgcode`.
        for each in (error, getattr(error, "orig", None)):
            if getattr(each, "transient", None) is True:
                return True
            if getattr(each, "sqlstate", None) in _ROLLED_BACK or getattr(each, "pgcode", None) in _ROLLED_BACK:
                return True
        error = error.__cause__
    return False


def _unwrapped(error: BaseException) -> BaseException:
    """A task group wraps the control flow of its members; the first one is what was meant."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            if control_flow(inner := _unwrapped(member)) is not None:
                return inner
    return error


def _asked(error: BaseException) -> Asked:
    if isinstance(error, NeedsAnswers):
        return Asked(request=error.request, index=error.index)
    raise error


def _timed_out(tool: Tool, error: LimitPassed) -> Failed:
    is_async = tool.run is not None and iscoroutinefunction(tool.run.function)
    then = "It was stopped and may have done part of its work" if is_async else "It cannot be stopped and may still run"
    text = f"Timeout: {tool.name!r} was {error}. {then}: check before you call it again."
    return Failed(error=text, error_type="Timeout")


def _unusable(tool: Tool, reason: str) -> Failed:
    text = f"The tool {tool.name!r} RAN, but its output could not be kept: {reason}. Do not call it again for that."
    return Failed(error=text[:ERROR_CHARS_MAX], error_type="UnusableOutput")


def _text(error: Exception) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # an error that cannot say what it is
        message = ""
    name = type(error).__name__
    return clean_text(f"{name}: {message}" if message else name)[:ERROR_CHARS_MAX]
