"""A model that refuses prompts which a real provider would refuse. Wrap every model double in it."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

from signoff.ports.model import (
    AssistantMessage,
    CallRequest,
    CallResult,
    Model,
    ModelEvent,
    OfferedTool,
    Prompt,
    PromptMessage,
    UserMessage,
)

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class PromptRefused(Exception):
    """A provider would answer this prompt with HTTP 400."""


class StrictModel:
    """Checks each prompt, then lets `inner` answer; also a `ModelCatalog` that has itself for every name.

    A run that meets a refusal fails like one with a broken provider; `refusals` keeps the texts, so that a test
    can assert there were none.
    """

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.refusals: list[str] = []

    @property
    def name(self) -> str:
        """See `ports.model.Model`."""
        return self.inner.name

    def model(self, name: str) -> "StrictModel":  # noqa: ARG002  # whatever the name
        """See `ports.model.ModelCatalog`."""
        return self

    async def aclose(self) -> None:
        """See `ports.model.ModelCatalog`. Nothing to close."""

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`.

        Raises:
            PromptRefused: see `check_prompt`.
        """
        try:
            check_prompt(prompt)
        except PromptRefused as refusal:
            self.refusals.append(str(refusal))
            raise
        events = self.inner.reply(prompt)
        try:
            async for event in events:
                yield event
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()  # who stops listening to us stops the request


def check_prompt(prompt: Prompt) -> None:
    """What OpenAI's and Anthropic's APIs demand of a conversation.

    Two messages of one speaker in a row are fine with both. Results may come in any order, but all of them directly
    after the reply that asked, before anybody speaks.

    Raises:
        PromptRefused: says which message is wrong, counted from 0.
    """
    messages = prompt.messages
    if not messages or not isinstance(messages[0], UserMessage):
        raise PromptRefused("the first message must be the user's")
    if isinstance(messages[-1], AssistantMessage):
        raise PromptRefused("the last message is the model's own: there is nothing to answer")
    _check_tools(prompt.tools)
    seen: set[str] = set()
    at = 0
    while at < len(messages):
        match messages[at]:
            case UserMessage(text=text):
                _demand(bool(text.strip()), at, "the user's message is empty")
                at += 1
            case CallResult(id=id_):
                raise PromptRefused(f"message {at}: the result of {id_!r} does not follow a reply that asked for it")
            case AssistantMessage() as reply:
                _check_reply(reply, at=at, seen=seen)
                _check_results(reply.calls, messages[at + 1 :], at=at)
                at += 1 + len(reply.calls)


def _check_reply(reply: AssistantMessage, *, at: int, seen: set[str]) -> None:
    _demand(bool(reply.text.strip() or reply.calls), at, "the reply has neither text nor calls")
    for call in reply.calls:
        _demand(bool(call.id), at, f"a call of {call.name!r} has no id")
        _demand(call.id not in seen, at, f"the call id {call.id!r} was used before")
        _demand(isinstance(call.arguments, dict), at, f"the arguments of {call.id!r} are no JSON object")
        seen.add(call.id)


def _check_results(calls: Sequence[CallRequest], following: Iterable[PromptMessage], *, at: int) -> None:
    """The next messages are the results of `calls`, one each."""
    open_calls = {call.id: call.name for call in calls}
    for message in following:
        if not open_calls or not isinstance(message, CallResult):
            break
        _demand(message.id in open_calls, at, f"the result of {message.id!r} is not one of its calls, or comes twice")
        name = open_calls.pop(message.id)
        _demand(message.name == name, at, f"the result of {message.id!r} is of {message.name!r}, the call of {name!r}")
    _demand(not open_calls, at, f"no result directly after the calls {sorted(open_calls)}")


def _check_tools(tools: Sequence[OfferedTool]) -> None:
    names = [tool.name for tool in tools]
    if len(set(names)) != len(names):
        raise PromptRefused(f"two tools have one name: {sorted(names)}")
    for tool in tools:
        if not _TOOL_NAME.fullmatch(tool.name):
            raise PromptRefused(f"the tool name {tool.name!r} may only hold letters, digits, '_' and '-', 64 at most")
        if tool.schema.get("type") != "object":
            raise PromptRefused(f"the schema of tool {tool.name!r} is not of type object")


def _demand(holds: bool, at: int, complaint: str) -> None:
    if not holds:
        raise PromptRefused(f"message {at}: {complaint}")
