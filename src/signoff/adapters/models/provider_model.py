"""A model of pydantic-ai's model layer behind our port."""

from collections.abc import AsyncIterator, Iterator
from typing import cast

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model as PydanticAiModel
from pydantic_ai.settings import ModelSettings

from signoff.adapters.models.failures import FAILURES, to_model_error
from signoff.adapters.models.history import to_messages, to_parameters
from signoff.domain.run import Usage
from signoff.errors import ModelError
from signoff.models.pricing import cost_usd
from signoff.ports.model import (
    CallDelta,
    CallStarted,
    ModelEvent,
    Prompt,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
)

#: The engine retries, with its journal and its backoff; two layers of retries would multiply.
_DEFAULT_SETTINGS: ModelSettings = {"max_retries": 0}


class ProviderModel:
    """See `ports.model.Model`. Holds its HTTP connections open until `aclose`; use it from one event loop."""

    def __init__(self, inner: PydanticAiModel, *, name: str) -> None:
        self._inner = inner
        self._name = name
        self._kept_open = False
        key = getattr(getattr(inner, "client", None), "api_key", None)
        # A placeholder such as "none" is no secret, and masking it would garble the message.
        self._secrets = (key,) if isinstance(key, str) and len(key) >= 8 else ()

    @property
    def name(self) -> str:
        """See `ports.model.Model`."""
        return self._name

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`. `prompt.settings` are those of `pydantic_ai.settings.ModelSettings`."""
        settings = cast("ModelSettings", {**_DEFAULT_SETTINGS, **prompt.settings})
        reader = _ReplyReader()
        try:
            async with (
                self._inner,
                model_request_stream(
                    self._inner,
                    to_messages(prompt),
                    model_settings=settings,
                    model_request_parameters=to_parameters(prompt),
                ) as stream,
            ):
                await self._keep_open()
                async for event in stream:
                    for known in reader.read(event):
                        yield known
                response = stream.get()
        except FAILURES as error:
            failure = to_model_error(error, model=self._name, secrets=self._secrets)
            # The cause may quote the provider's answer, and with it the key: it stays out of logged tracebacks.
            raise failure from None
        self._check_whole(response)
        for known in reader.finish(response):
            yield known
        yield self._finished(response)

    async def aclose(self) -> None:
        """Close the connections. The model can be used again afterwards, also from another event loop."""
        if self._kept_open:
            self._kept_open = False
            await self._inner.__aexit__(None, None, None)

    async def _keep_open(self) -> None:
        """Enter the model once more, so that its connections outlive this reply."""
        if not self._kept_open:
            self._kept_open = True
            await self._inner.__aenter__()

    def _check_whole(self, response: ModelResponse) -> None:
        """Some proxies end a broken stream as if it were whole: only the provider's last word tells."""
        told_why = response.finish_reason or (response.provider_details or {}).get("finish_reason")
        if response.state == "suspended":
            raise ModelError(f"{self._name}: the provider paused its reply, which signoff does not support")
        if response.finish_reason == "error":
            raise ModelError(f"{self._name}: the provider failed", transient=True)
        if response.state != "complete" or (response.provider_url and not told_why):
            raise ModelError(f"{self._name}: the reply broke off before its end", transient=True)

    def _finished(self, response: ModelResponse) -> ReplyFinished:
        usage = response.usage
        model = response.model_name or self._inner.model_name
        # A gateway that sends the bill itself knows best.
        cost = usage.cost
        if cost is None and not usage.unmeasured_requests:
            cost = cost_usd(usage, model=model, provider=response.provider_name, url=response.provider_url)
        return ReplyFinished(
            usage=Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens", 0),
            ),
            model=model,
            cost_usd=cost,
        )


class _ReplyReader:
    """Follows the parts of one reply. A part keeps its index, so parallel calls may grow in any order."""

    def __init__(self) -> None:
        self._calls: dict[int, _CallSoFar] = {}

    def read(self, event: ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                if text:
                    yield TextDelta(text=text)
            case PartStartEvent(part=ThinkingPart(content=thought)):
                if thought:
                    yield ReasoningDelta(text=thought)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=more)):
                if more:
                    yield ReasoningDelta(text=more)
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                yield from self._start(index, part)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=str(arguments))):
                yield from self._calls[index].more(arguments)
            case _:
                # Ends of parts, and parts that only tools of the provider make: signoff offers none of those.
                pass

    def finish(self, response: ModelResponse) -> Iterator[ModelEvent]:
        """What the whole reply holds beyond its deltas: arguments that came as values instead of text."""
        parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
        for call, part in zip(self._calls.values(), parts, strict=True):
            yield from call.complete(part)

    def _start(self, index: int, part: ToolCallPart) -> Iterator[ModelEvent]:
        if index in self._calls:  # told again, as a whole: `finish` compares
            return
        call = _CallSoFar(index=len(self._calls), name=part.tool_name)
        self._calls[index] = call
        yield CallStarted(index=call.index, provider_id=part.tool_call_id, name=part.tool_name)
        if isinstance(part.args, str):
            yield from call.more(part.args)


class _CallSoFar:
    def __init__(self, *, index: int, name: str) -> None:
        self.index = index
        self._name = name
        self._sent = ""

    def more(self, arguments: str) -> Iterator[CallDelta]:
        if arguments:
            self._sent += arguments
            yield CallDelta(index=self.index, arguments=arguments)

    def complete(self, part: ToolCallPart) -> Iterator[CallDelta]:
        whole = part.args if isinstance(part.args, str) and part.args else part.args_as_json_str()
        if part.tool_name != self._name or not whole.startswith(self._sent):
            raise ModelError(f"the call {self._name!r} changed while the model was sending it", transient=True)
        yield from self.more(whole.removeprefix(self._sent))
