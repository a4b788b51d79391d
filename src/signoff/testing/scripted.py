"""A model that says what a script tells it, for tests and demos.

Which turn comes next is read off the prompt: the number of replies since the user last spoke. So a restarted process,
or another one, goes on where the script was, and a replayed call says the same thing again.

    model = ScriptedModel([
        turn("Let me look.", ask_for("get_order", {"order_id": "A1"})),
        ask_for("refund", {"order_id": "A1", "cents": 500}),
        "Done.",
    ])
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Self, TypeAlias, assert_never

from signoff.adapters.system import SystemClock
from signoff.domain.jsonvalue import Json, digest, encode
from signoff.domain.run import Usage
from signoff.errors import ModelError
from signoff.ports.clock import Clock
from signoff.ports.model import (
    AssistantMessage,
    CallDelta,
    CallResult,
    CallStarted,
    ModelEvent,
    Prompt,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    UserMessage,
)

# --- what a model can do in a turn --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """Text in `deltas`, with `delay` before each."""

    deltas: tuple[str, ...]
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """Reasoning in one piece."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskFor:
    """A call; `arguments` is the JSON text, or whatever text a confused model sends."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Hold the stream until the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Boom:
    """The reply breaks off here."""

    error: Exception


Part: TypeAlias = Say | Think | AskFor | WaitFor | Boom


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply. Without `usage` its tokens are counted in words.

    The first attempts at it fail with `failures`, one each; attempts are counted by prompt, in this process only.
    """

    parts: tuple[Part, ...]
    usage: Usage | None = None
    failures: tuple[Exception, ...] = ()


#: A turn, or what makes one by itself.
Answer: TypeAlias = Turn | Part | str


def say(text: str, *, deltas: Sequence[str] | None = None, delay: timedelta = timedelta()) -> Say:
    """Say `text`, word by word or in the `deltas` given, whose sum it must be."""
    pieces = tuple(deltas) if deltas is not None else tuple(re.findall(r"\s*\S+\s*", text))
    if deltas is not None and "".join(pieces) != text:
        raise ValueError(f"the deltas make {''.join(pieces)!r}, not {text!r}")
    return Say(deltas=pieces, delay=delay)


def think(text: str) -> Think:
    """Reason before speaking."""
    return Think(text=text)


def ask_for(name: str, arguments: Json = None, *, id: str = "call_1") -> AskFor:  # noqa: A002  # reads like the call
    """Ask for a call. Text as `arguments` is sent as it is, so that it may be broken JSON; nothing means ``{}``.

    Several in one turn are parallel calls: their arguments arrive interleaved. The `id` may repeat over turns, as
    it does with real providers.
    """
    text = arguments if isinstance(arguments, str) else encode({} if arguments is None else arguments)
    return AskFor(id=id, name=name, arguments=text)


def wait_for(event: asyncio.Event) -> WaitFor:
    """Hold the stream until `event` is set."""
    return WaitFor(event=event)


def boom(message: str = "the provider failed", *, transient: bool = False) -> Boom:
    """Break off: at the start of a turn the request is refused, behind other parts the stream dies."""
    return Boom(error=ModelError(message, transient=transient))


def turn(*parts: Part | str, usage: Usage | None = None) -> Turn:
    """One reply of several parts."""
    return Turn(parts=tuple(say(part) if isinstance(part, str) else part for part in parts), usage=usage)


def flaky(answer: Answer, *, failures: int = 1) -> Turn:
    """`answer`, after that many transient failures."""
    whole = _as_turn(answer)
    errors = tuple(ModelError("the provider is overloaded", transient=True) for _ in range(failures))
    return Turn(parts=whole.parts, usage=whole.usage, failures=errors)


# --- what a script can look at ------------------------------------------------------------------------------


def step(prompt: Prompt) -> int:
    """How often the model has replied since the user last spoke: 0 for the first reply of a turn."""
    return sum(isinstance(message, AssistantMessage) for message in _since_user(prompt))


def asked(prompt: Prompt) -> str:
    """What the user said last; empty when nobody spoke."""
    return next((message.text for message in reversed(prompt.messages) if isinstance(message, UserMessage)), "")


def results(prompt: Prompt) -> list[CallResult]:
    """The results of the calls made since the user last spoke, in order."""
    return [message for message in _since_user(prompt) if isinstance(message, CallResult)]


# --- the model ----------------------------------------------------------------------------------------------


class ScriptedModel:
    """See `ports.model.Model`; also a `ModelCatalog` that has itself for every name.

    Args:
        script: the turns that answer one message of the user, in order. It starts anew with the next message.
        name: the model's name.
        clock: what `delay` is measured by.
        usd_per_token: the price, None for a model without one.
    """

    def __init__(
        self,
        script: Sequence[Answer],
        *,
        name: str = "scripted",
        clock: Clock | None = None,
        usd_per_token: Decimal | None = None,
    ) -> None:
        self._choose: Callable[[Prompt], Answer] = lambda prompt: _nth(script, step(prompt))
        self._name = name
        self._clock = clock or SystemClock()
        self._usd_per_token = usd_per_token
        self._attempts: Counter[str] = Counter()
        self.prompts: list[Prompt] = []

    @classmethod
    def from_function(
        cls,
        function: Callable[[Prompt], Answer],
        *,
        name: str = "scripted",
        clock: Clock | None = None,
        usd_per_token: Decimal | None = None,
    ) -> Self:
        """A model that answers each prompt with what `function` makes of it; see `step`, `asked` and `results`."""
        model = cls([], name=name, clock=clock, usd_per_token=usd_per_token)
        model._choose = function
        return model

    @classmethod
    def by_message(
        cls,
        scripts: Mapping[str, Sequence[Answer]],
        *,
        name: str = "scripted",
        clock: Clock | None = None,
        usd_per_token: Decimal | None = None,
    ) -> Self:
        """A script for each message the user may send, by its whole text."""

        def choose(prompt: Prompt) -> Answer:
            if asked(prompt) not in scripts:
                raise ModelError(f"no script for the message {asked(prompt)!r}")
            return _nth(scripts[asked(prompt)], step(prompt))

        return cls.from_function(choose, name=name, clock=clock, usd_per_token=usd_per_token)

    @property
    def name(self) -> str:
        """See `ports.model.Model`."""
        return self._name

    @property
    def calls(self) -> int:
        """How often the model was called in this process, failed attempts included."""
        return len(self.prompts)

    def model(self, name: str) -> Self:  # noqa: ARG002  # whatever the name
        """See `ports.model.ModelCatalog`."""
        return self

    async def aclose(self) -> None:
        """See `ports.model.ModelCatalog`. Nothing to close."""

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`."""
        self.prompts.append(prompt)
        turn = _as_turn(self._choose(prompt))
        self._fail_early(turn, prompt)
        for part in _with_parallel_calls(turn.parts):
            match part:
                case Say(deltas=deltas, delay=delay):
                    for delta in deltas:
                        if delay:
                            await self._clock.sleep_until(self._clock.now() + delay)
                        yield TextDelta(text=delta)
                case Think(text=text):
                    yield ReasoningDelta(text=text)
                case WaitFor(event=event):
                    await event.wait()
                case Boom(error=error):
                    raise error
                case list():
                    for call_event in _stream(part):
                        yield call_event
                case _:
                    assert_never(part)
        usage = turn.usage or Usage(input_tokens=_words_read(prompt), output_tokens=_words_said(turn))
        cost = self._usd_per_token * usage.total if self._usd_per_token is not None else None
        yield ReplyFinished(usage=usage, model=self._name, cost_usd=cost)

    def _fail_early(self, turn: Turn, prompt: Prompt) -> None:
        key = digest(_plain(prompt))
        attempt = self._attempts[key]
        self._attempts[key] += 1
        if attempt < len(turn.failures):
            raise turn.failures[attempt]


def _nth(script: Sequence[Answer], number: int) -> Answer:
    if number >= len(script):
        raise ModelError(f"the script has {len(script)} turns, and the model was asked for one more")
    return script[number]


def _as_turn(answer: Answer) -> Turn:
    return answer if isinstance(answer, Turn) else turn(answer)


def _since_user(prompt: Prompt) -> list[PromptMessage]:
    since: list[PromptMessage] = []
    for message in reversed(prompt.messages):
        if isinstance(message, UserMessage):
            break
        since.append(message)
    return since[::-1]


def _with_parallel_calls(parts: Sequence[Part]) -> Iterator[Say | Think | WaitFor | Boom | list[tuple[int, AskFor]]]:
    """The parts, with neighbouring calls as one list; calls are counted through the whole reply."""
    numbers = itertools.count()
    waiting: list[tuple[int, AskFor]] = []
    for part in parts:
        if isinstance(part, AskFor):
            waiting.append((next(numbers), part))
            continue
        if waiting:
            yield waiting
            waiting = []
        yield part
    if waiting:
        yield waiting


def _stream(calls: Sequence[tuple[int, AskFor]]) -> Iterator[CallStarted | CallDelta]:
    """Begin all, then send the arguments of all in two halves, as parallel calls really arrive."""
    for index, call in calls:
        yield CallStarted(index=index, provider_id=call.id, name=call.name)
    for half in (0, 1):
        for index, call in calls:
            middle = len(call.arguments) // 2
            if piece := (call.arguments[:middle], call.arguments[middle:])[half]:
                yield CallDelta(index=index, arguments=piece)


def _plain(prompt: Prompt) -> Json:
    """The prompt as JSON, to tell one from another."""
    return [prompt.instructions, *(_plain_message(message) for message in prompt.messages)]


def _plain_message(message: PromptMessage) -> Json:
    match message:
        case UserMessage(text=text):
            return text
        case AssistantMessage(text=text, calls=calls):
            return [text, *([call.name, call.arguments] for call in calls)]
        case CallResult(output=output):
            return output
        case _:
            assert_never(message)


def _words_read(prompt: Prompt) -> int:
    return _words(encode(_plain(prompt)))


def _words_said(turn: Turn) -> int:
    said = ["".join(part.deltas) for part in turn.parts if isinstance(part, Say)]
    asked_for = [f"{part.name} {part.arguments}" for part in turn.parts if isinstance(part, AskFor)]
    return _words(" ".join(said + asked_for))


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))
