"""Language models: a prompt goes in, a stream of events comes out. Providers are reached through libraries."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, TypeAlias

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.domain.run import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the user said."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A call the model asked for earlier. `id` pairs it with its result; `arguments` are as it sent them."""

    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One model step: text, then calls. The results follow directly after."""

    text: str
    calls: tuple[CallRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """The one result of a call. `output` is what the model reads; `is_error` marks a call that did not succeed."""

    id: str
    name: str
    output: Json
    is_error: bool = False


PromptMessage: TypeAlias = UserMessage | AssistantMessage | CallResult


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool the model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All that a model call needs. Every call in `messages` has exactly one result directly after its message."""

    instructions: str
    messages: Sequence[PromptMessage]
    tools: Sequence[OfferedTool] = ()
    settings: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """More text; not empty."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """More of the model's reasoning; not empty."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """The model begins a call. `index` counts the calls of this reply from 0; `provider_id` may repeat over replies."""

    index: int
    provider_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """More of the call's arguments, as JSON text."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFinished:
    """The reply is whole; the last event. `cost_usd` is None where no price is known."""

    usage: Usage
    model: str
    cost_usd: Decimal | None = None


ModelEvent: TypeAlias = TextDelta | ReasoningDelta | CallStarted | CallDelta | ReplyFinished


class Model(Protocol):
    """A model that can be called."""

    @property
    def name(self) -> str:
        """As configured, e.g. ``"openai:gpt-5-mini"``."""
        ...

    def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """Stream one reply. Closing the iterator (or cancelling the task) stops the request at once.

        Raises:
            ModelError: the call failed, before or in the middle of the stream; `transient` says whether a
                later attempt may succeed.
        """
        ...


class ModelCatalog(Protocol):
    """Turns a model's name into a model."""

    def model(self, name: str) -> Model:
        """The model.

        Raises:
            ConfigurationError: the name is unknown or its provider's library is missing; says what to install.
        """
        ...

    async def aclose(self) -> None:
        """Close connections to providers; models asked for later open new ones. Idempotent."""
        ...
