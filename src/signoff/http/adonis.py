"""The older `{delta}` dialect, spoken on top of the native frames (WIRE section 8)."""

from signoff.domain.frame import Frame, NumberedFrame
from signoff.domain.jsonvalue import JsonObject
from signoff.http.sse import block, native

#: The fields an older client needs to show a card. It knows the block by its event name; a `kind` in it would be
#: applied a second time by newer clients.
_APPROVAL_FIELDS = ("runId", "id", "toolName", "input")
_ELICITATION_FIELDS = ("runId", "id", "request")


def superset(numbered: NumberedFrame) -> str:
    """Native frames that older clients understand as well."""
    frame = numbered.frame
    match frame.get("kind"):
        case "text":
            return block({**frame, "delta": frame.get("text")}, number=numbered.seq)
        case "tool-input-delta":
            # An older client takes `delta` from any block, so arguments would show up as the answer's text.
            return ""
        case "approval-requested":
            return native(numbered) + block(_only(frame, _APPROVAL_FIELDS), event="approval")
        case "elicitation":
            return native(numbered) + block(_only(frame, _ELICITATION_FIELDS), event="elicitation")
        case _:
            return native(numbered)


def _only(frame: Frame, fields: tuple[str, ...]) -> JsonObject:
    return {field: frame[field] for field in fields if field in frame}
