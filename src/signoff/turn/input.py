"""What a turn is started with. Kept with the run and journaled as the workflow's input."""

from dataclasses import dataclass

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.domain.run import Run
from signoff.errors import NotJson


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInput:
    """A turn. `stream_id` differs from `run_id` for an awaited sub-agent, whose frames go to the watched run.

    `chain` names the agents from the top-level run down to this one. `parent_call_id` is the delegating call.
    """

    run_id: str
    thread_id: str
    stream_id: str
    actor: Actor
    agent: str
    persona: str | None = None
    model: str | None = None
    page_context: JsonObject | None = None
    parent_id: str | None = None
    parent_call_id: str | None = None
    detached: bool = False
    chain: tuple[str, ...] = ()

    @property
    def is_nested(self) -> bool:
        """Whether the frames go to another run's stream: then text and step frames stay away from it."""
        return self.stream_id != self.run_id

    def to_json(self) -> JsonObject:
        """The journaled form."""
        return {
            "runId": self.run_id,
            "threadId": self.thread_id,
            "streamId": self.stream_id,
            "actor": {"id": self.actor.id, "roles": [*sorted(self.actor.roles)], "tenant": self.actor.tenant},
            "agent": self.agent,
            "persona": self.persona,
            "model": self.model,
            "pageContext": self.page_context,
            "parentId": self.parent_id,
            "parentCallId": self.parent_call_id,
            "detached": self.detached,
            "chain": list(self.chain),
        }

    @classmethod
    def from_json(cls, value: JsonObject) -> "TurnInput":
        """The inverse of `to_json`. Raises `NotJson` where the shape is wrong."""
        actor = as_object(value.get("actor"), what="actor of a turn's input")
        page_context = value.get("pageContext")
        return cls(
            run_id=_text(value, "runId"),
            thread_id=_text(value, "threadId"),
            stream_id=_text(value, "streamId"),
            actor=Actor(id=_text(actor, "id"), roles=frozenset(_texts(actor, "roles")), tenant=_text(actor, "tenant")),
            agent=_text(value, "agent"),
            persona=_optional(value, "persona"),
            model=_optional(value, "model"),
            page_context=None if page_context is None else as_object(page_context, what="pageContext"),
            parent_id=_optional(value, "parentId"),
            parent_call_id=_optional(value, "parentCallId"),
            detached=value.get("detached") is True,
            chain=tuple(_texts(value, "chain")),
        )

    @classmethod
    def of(cls, run: Run) -> "TurnInput":
        """The input that `run` was started with."""
        return cls.from_json(run.input)


def _text(value: JsonObject, key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str):
        raise NotJson(what=f"{key!r} of a turn's input", reason="expected text")
    return found


def _optional(value: JsonObject, key: str) -> str | None:
    return None if value.get(key) is None else _text(value, key)


def _texts(value: JsonObject, key: str) -> list[str]:
    found: Json = value.get(key)
    if not isinstance(found, list):
        raise NotJson(what=f"{key!r} of a turn's input", reason="expected a list")
    return [item for item in found if isinstance(item, str)]
