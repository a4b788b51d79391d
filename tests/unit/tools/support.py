"""What the tests of tools share."""

from signoff.domain.actor import Actor
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import JsonObject
from signoff.tools.context import ToolContext


def a_context(
    *,
    roles: frozenset[str] = frozenset(),
    answers: tuple[JsonObject, ...] = (),
    frames: list[Frame] | None = None,
    cancelled: bool = False,
) -> ToolContext:
    """A context as the runtime makes it; frames are collected in `frames`."""
    collected = [] if frames is None else frames
    return ToolContext(
        actor=Actor(id="ana", roles=roles),
        thread_id="thread_1",
        run_id="run_1",
        call_id="call_1",
        idempotency_key="run_1:call_1",
        answers=answers,
        send_frame=collected.append,
        is_cancelled=lambda: cancelled,
    )
