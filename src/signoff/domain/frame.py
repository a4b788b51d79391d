"""Events of a run's live stream (WIRE section 4): JSON objects with a `kind`. The store numbers them."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from signoff.domain.call import ToolKind
from signoff.domain.jsonvalue import Json, JsonObject

Frame: TypeAlias = JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedFrame:
    """Frame `seq` of a stream, counted from 1, the same on every attach, process and restart."""

    seq: int
    frame: Frame


#: Kinds after which nothing follows. They carry no number and are kept as the stream's ending.
DONE = "done"
ERROR = "error"


def without_none(**fields: Json) -> JsonObject:
    """Optional fields are left out, never null (WIRE section 1)."""
    return {name: value for name, value in fields.items() if value is not None}


def instant(value: datetime) -> str:
    """ISO-8601 in UTC with milliseconds and a Z, as every instant on the wire."""
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def step_start() -> Frame:
    return {"kind": "step-start"}


def step_finish(*, usage: JsonObject | None, cost_usd: float | None, model: str | None) -> Frame:
    return without_none(kind="step-finish", usage=usage, costUsd=cost_usd, model=model)


def text(delta: str) -> Frame:
    return {"kind": "text", "text": delta}


def reasoning(delta: str) -> Frame:
    return {"kind": "reasoning", "text": delta}


def tool_input_start(*, call_id: str, name: str, kind: ToolKind, parent_id: str | None = None) -> Frame:
    return without_none(kind="tool-input-start", id=call_id, name=name, toolKind=kind.on_wire, parentId=parent_id)


def tool_input_delta(*, call_id: str, delta: str) -> Frame:
    return {"kind": "tool-input-delta", "id": call_id, "delta": delta}


def tool_input_available(
    *, call_id: str, name: str, arguments: Json, kind: ToolKind, parent_id: str | None = None
) -> Frame:
    frame = without_none(kind="tool-input-available", id=call_id, name=name, toolKind=kind.on_wire, parentId=parent_id)
    frame["input"] = arguments
    return frame


def tool_output(*, call_id: str, output: Json) -> Frame:
    return {"kind": "tool-output", "id": call_id, "output": output}


def tool_output_error(*, call_id: str, error: str) -> Frame:
    return {"kind": "tool-output-error", "id": call_id, "error": error}


def tool_output_denied(*, call_id: str, reason: str | None) -> Frame:
    return without_none(kind="tool-output-denied", id=call_id, reason=reason)


def cancelled() -> Frame:
    return {"kind": "cancelled"}


def title(value: str) -> Frame:
    return {"kind": "title", "title": value}


def withdrawn(*, from_seq: int) -> Frame:
    """Frames numbered `from_seq` up to this one belong to a model attempt that was lost (WIRE section 11)."""
    return {"kind": "withdrawn", "from": from_seq}


def done() -> Frame:
    return {"kind": DONE}


def error(*, code: str, message: str) -> Frame:
    return {"kind": ERROR, "code": code, "message": message}
