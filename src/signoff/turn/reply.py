"""A model's reply, as `llm:<i>` journals it."""

from dataclasses import dataclass

from signoff.domain import frame
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.run import Usage
from signoff.models.usage import from_wire, to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCall:
    """A call in a reply. `id` is ours; `arguments` is the text the model wrote, valid JSON or not."""

    id: str
    provider_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole reply. `cost_usd` is decimal text, None where no price is known."""

    text: str
    reasoning: str
    calls: tuple[ReplyCall, ...]
    usage: Usage
    model: str
    cost_usd: str | None

    def to_json(self) -> JsonObject:
        """The journaled form."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "calls": [
                {"id": call.id, "providerId": call.provider_id, "name": call.name, "arguments": call.arguments}
                for call in self.calls
            ],
            "usage": to_wire(self.usage),
            "model": self.model,
            "costUsd": self.cost_usd,
        }

    def step_finish(self) -> Frame:
        """The frame that closes this step on the stream, behind the outcomes of its calls (WIRE 5.4)."""
        cost = None if self.cost_usd is None else float(self.cost_usd)
        return frame.step_finish(usage=to_wire(self.usage), cost_usd=cost, model=self.model)

    @classmethod
    def from_json(cls, value: Json) -> "Reply":
        """The inverse of `to_json`."""
        reply = as_object(value, what="a reply")
        calls = reply["calls"]
        cost = reply.get("costUsd")
        return cls(
            text=str(reply["text"]),
            reasoning=str(reply["reasoning"]),
            calls=tuple(_call(item) for item in calls) if isinstance(calls, list) else (),
            usage=from_wire(as_object(reply["usage"], what="a reply's usage")),
            model=str(reply["model"]),
            cost_usd=None if cost is None else str(cost),
        )


def _call(value: Json) -> ReplyCall:
    call = as_object(value, what="a reply's call")
    return ReplyCall(
        id=str(call["id"]),
        provider_id=str(call["providerId"]),
        name=str(call["name"]),
        arguments=str(call["arguments"]),
    )
