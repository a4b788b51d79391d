"""A model without a network: what it says depends only on what it reads."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from signoff.domain.jsonvalue import Json, JsonObject, decode, encode
from signoff.domain.run import Usage
from signoff.errors import ModelError
from signoff.ports.clock import Clock
from signoff.ports.model import (
    CallDelta,
    CallResult,
    CallStarted,
    ModelEvent,
    Prompt,
    PromptMessage,
    ReplyFinished,
    TextDelta,
    UserMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """One reply: text, word by word with `pace` between words, then at most one call, or a failure."""

    text: str = ""
    call: tuple[str, JsonObject] | None = None
    pace: timedelta = timedelta()
    failure: str | None = None


_STORY = (
    "This answer takes its time. Each word is a frame of the stream, numbered within the run, so you may close "
    "the page, open it again and read on where you were. Or press Stop."
)

#: One question with a list and a default: what `ask me` asks.
_QUESTIONS: JsonObject = {
    "preamble": "Before I go on:",
    "questions": [
        {
            "id": "scope",
            "prompt": "How much should I clean up?",
            "options": [
                {"value": "file", "label": "Only this file"},
                {"value": "module", "label": "The whole module"},
                {"value": "project", "label": "The project"},
            ],
            "defaults": ["module"],
        }
    ],
}


#: What a user may say, tried in this order, and what the model answers.
_OPENINGS: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], Say]]] = [
    (re.compile(r"weather in (.+)", re.I), lambda said: Say(call=("getWeather", {"city": said[1]}))),
    (re.compile(r"purge (.+)", re.I), lambda said: Say(call=("purgeCache", {"key": said[1]}))),
    (re.compile(r"refund (\S+)", re.I), lambda said: Say(call=("refundOrder", {"orderId": said[1], "cents": 4200}))),
    (re.compile(r"transfer (\d+)", re.I), lambda said: Say(call=("transferMoney", {"euros": int(said[1])}))),
    (re.compile(r"delete (\S+)", re.I), lambda said: Say(call=("deleteAccount", {"account": said[1]}))),
    (re.compile(r"research (.+)", re.I), lambda said: Say(call=("ask_researcher", {"task": f"Look into {said[1]}"}))),
    (re.compile(r"start (.+)", re.I), lambda said: Say(call=("start_archivist", {"task": f"Look into {said[1]}"}))),
    # What the desk says to its sub-agents.
    (re.compile(r"look into (.+)", re.I), lambda said: Say(call=("searchArchive", {"topic": said[1]}))),
    (re.compile(r"ask me", re.I), lambda _: Say(call=("ask", _QUESTIONS))),
    (re.compile(r"slow", re.I), lambda _: Say(text=_STORY, pace=timedelta(milliseconds=55))),
    (re.compile(r"boom", re.I), lambda _: Say(text="Let me look into that. ", failure="the model went away")),
    (
        re.compile(r"hello", re.I),
        lambda _: Say(text="Hello! I look things up on my own; before I change anything, I ask you."),
    ),
]


def reply_to(messages: Sequence[PromptMessage]) -> Say:
    """The reply to a conversation: to the results of the newest message's calls, or else to that message."""
    asked = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=None)
    if asked is None:
        return Say(text="What can I do for you?")
    results = [message for message in messages[asked:] if isinstance(message, CallResult)]
    if results:
        last = results[-1]
        if last.name in _THEN and not last.is_error and isinstance(last.output, dict):
            return _THEN[last.name](last.output)
        return Say(text=" ".join(_summary(result) for result in results))
    message = messages[asked]
    said = message.text.strip() if isinstance(message, UserMessage) else ""
    for pattern, opening in _OPENINGS:
        if match := pattern.fullmatch(said):
            return opening(match)
    return Say(text=f"You said: {said}. Try “weather in Lisbon”, “purge homepage”, “refund A-1001” or “ask me”.")


def _summary(result: CallResult) -> str:
    if result.is_error:
        return _sorry(result.name, str(result.output))
    output = result.output
    # A person who changes the arguments makes the runtime tell the model so, with the output inside.
    edited = isinstance(output, dict) and {"note", "output"} <= output.keys()
    if isinstance(output, dict) and edited:
        output = output.get("output")
    happened = _HAPPENED.get(result.name, _fallback)(output if isinstance(output, dict) else {"result": output})
    return f"{happened} (You changed what I had asked for.)" if edited else happened


def _sorry(name: str, text: str) -> str:
    """What to say about a call that did not succeed, from what the runtime tells the model about it."""
    if "declined" in text:
        _, said, reason = text.partition("They said: ")
        return (
            f"All right, I left it alone: {decode(reason.partition('. Respect that')[0])}."
            if said
            else "All right, I left it alone."
        )
    if "expired" in text:
        return f"Nobody answered in time, so {name} did not run. Say it again if you still want it."
    return f"{name} did not work: {text}"


def _answers(output: JsonObject) -> str:
    answers = output.get("answers")
    values = answers.values() if isinstance(answers, dict) else ()
    chosen = [str(pick) for picks in values if isinstance(picks, list) for pick in picks]
    how = "You skipped that, so I take" if output.get("skipped") else "Thank you, I take"
    return f"{how}: {', '.join(chosen) or 'nothing'}."


def _fallback(output: JsonObject) -> str:
    return f"That gave {encode(output)}."


def _count(output: JsonObject) -> int:
    pages = output.get("pages")
    return len(pages) if isinstance(pages, list) else 0


def _money(cents: Json) -> str:
    return f"{cents / 100:.2f} €" if isinstance(cents, int) else str(cents)


_HAPPENED: dict[str, Callable[[JsonObject], str]] = {
    "getWeather": lambda output: f"It is {output.get('tempC')} °C in {output.get('city')}.",
    "purgeCache": lambda output: f"Done: {output.get('purged')} is purged.",
    "refundOrder": lambda output: f"Done: {_money(output.get('cents'))} refunded for order {output.get('orderId')}.",
    "transferMoney": lambda output: (
        f"Done: {output['euros']} € transferred."
        if "euros" in output  # else a person said what became of it
        else f"So the money is there: {output.get('result')}."
    ),
    "deleteAccount": lambda output: f"Done: the account {output.get('deleted')} is deleted.",
    "searchArchive": lambda output: f"The archive has {_count(output)} pages on {output.get('topic')}.",
    "saveNote": lambda output: f"I kept a note of it under “{output.get('saved')}”.",
    "ask_researcher": lambda output: f"The researcher says: {output.get('result')}",
    "start_archivist": lambda _: "The archivist works on it by itself; what it says will appear here.",
    "ask": _answers,
}

#: What follows from a result, where it is not the answer yet.
_THEN: dict[str, Callable[[JsonObject], Say]] = {
    "searchArchive": lambda output: Say(
        call=("saveNote", {"title": output.get("topic"), "text": f"{_count(output)} pages are on the shelf."})
    ),
}


class DemoModel:
    """Streams `reply_to`. Words count as tokens."""

    name = "scripted"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def reply(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """See `ports.model.Model`."""
        say = reply_to(prompt.messages)
        words = re.findall(r"\S+\s*", say.text)
        for word in words:
            yield TextDelta(text=word)
            if say.pace:
                await self._clock.sleep_until(self._clock.now() + say.pace)
        if say.failure is not None:
            raise ModelError(say.failure)
        if say.call is not None:
            name, arguments = say.call
            yield CallStarted(index=0, provider_id="call_1", name=name)
            yield CallDelta(index=0, arguments=encode(arguments))
        read = sum(len(message.text.split()) for message in prompt.messages if isinstance(message, UserMessage))
        yield ReplyFinished(usage=Usage(input_tokens=read, output_tokens=len(words) or 1), model=self.name)
