"""What is wrong with a value, in words for whoever sent it: a path and a reason, nothing of our insides."""

from pydantic import ValidationError

_SHOWN_MAX = 8
_REASON_CHARS_MAX = 300


def explain(error: ValidationError) -> str:
    """``cents: Input should be a valid integer; items[0].sku: Field required``: at most eight problems."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [_problem(problem["loc"], problem["msg"]) for problem in problems[:_SHOWN_MAX]]
    if len(problems) > _SHOWN_MAX:
        shown.append(f"and {len(problems) - _SHOWN_MAX} more")
    return "; ".join(shown)


def _problem(location: tuple[int | str, ...], message: str) -> str:
    reason = message.removeprefix("Value error, ")[:_REASON_CHARS_MAX]
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return f"{path}: {reason}" if path else reason
