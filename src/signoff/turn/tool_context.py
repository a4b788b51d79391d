"""The runtime's side of a `ToolContext`."""

import asyncio
from collections.abc import Callable

from signoff.domain.call import Call
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.engine import TaskInfo
from signoff.ports.store import Tx
from signoff.tools.context import ToolContext
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput


def tool_context(
    deps: TurnDeps,
    turn: TurnInput,
    call: Call,
    *,
    info: TaskInfo | None = None,
    answers: tuple[JsonObject, ...] = (),
) -> ToolContext:
    """What a tool is handed. Without `info` (a preflight before the card) nothing is cancelled or shown.

    The call's id is its idempotency key: the same on every attempt, and when a person lets it run again.
    """
    loop = asyncio.get_running_loop()

    def write(frames: list[Frame]) -> Callable[[Tx], None]:
        def emit(tx: Tx) -> None:
            tx.emit(turn.stream_id, frames)

        return emit

    def send_frame(piece: Frame) -> None:
        # A synchronous tool runs in a thread; the store belongs to the event loop.
        loop.call_soon_threadsafe(deps.store.transact_soon, f"ui:{call.id}", write([piece]))

    def on_cancel(callback: Callable[[], None]) -> None:
        if info is not None:
            loop.call_soon_threadsafe(info.on_cancel, callback)

    return ToolContext(
        actor=turn.actor,
        thread_id=turn.thread_id,
        run_id=turn.run_id,
        call_id=call.id,
        idempotency_key=call.id,
        attempt=1 if info is None else info.attempt,
        answers=answers,
        send_frame=send_frame,
        is_cancelled=(lambda: False) if info is None else info.cancelled,
        add_cancel_callback=on_cancel,
    )
