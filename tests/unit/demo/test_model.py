"""What the scripted model says, from what it reads."""

import asyncio
from datetime import timedelta

import pytest

from signoff.demo.model import DemoModel, reply_to
from signoff.domain.jsonvalue import Json
from signoff.errors import ModelError
from signoff.ports.model import (
    AssistantMessage,
    CallRequest,
    CallResult,
    ModelEvent,
    Prompt,
    PromptMessage,
    ReplyFinished,
    TextDelta,
    UserMessage,
)
from signoff.testing.clock import START, FakeClock


def asked(text: str) -> list[PromptMessage]:
    return [UserMessage(text=text)]


def answered(name: str, output: Json, *, is_error: bool = False) -> list[PromptMessage]:
    call = CallRequest(id="call", name=name, arguments={})
    result = CallResult(id="call", name=name, output=output, is_error=is_error)
    return [*asked("do it"), AssistantMessage(text="", calls=(call,)), result]


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("weather in Lisbon", ("getWeather", {"city": "Lisbon"})),
        ("Weather in São Paulo", ("getWeather", {"city": "São Paulo"})),
        ("purge k-1", ("purgeCache", {"key": "k-1"})),
        ("refund A-1001", ("refundOrder", {"orderId": "A-1001", "cents": 4200})),
        ("transfer 50", ("transferMoney", {"euros": 50})),
        ("delete ann", ("deleteAccount", {"account": "ann"})),
        ("research bees", ("ask_researcher", {"task": "Look into bees"})),
        ("start bees", ("start_archivist", {"task": "Look into bees"})),
        ("Look into bees", ("searchArchive", {"topic": "bees"})),
    ],
)
def test_a_command_becomes_a_call(said: str, call: tuple[str, Json]) -> None:
    assert reply_to(asked(said)).call == call


def test_anything_else_is_answered_in_text() -> None:
    reply = reply_to(asked("what now?"))
    assert reply.call is None
    assert reply.text.startswith("You said: what now?.")


def test_only_the_newest_message_counts() -> None:
    assert reply_to([*answered("purgeCache", {"purged": "a"}), *asked("hello")]).text.startswith("Hello!")


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (answered("purgeCache", {"purged": "homepage"}), "Done: homepage is purged."),
        (
            answered("purgeCache", {"note": "edited", "arguments": {}, "output": {"purged": "b"}}),
            "Done: b is purged. (You changed what I had asked for.)",
        ),
        (
            answered(
                "purgeCache", 'A person declined this call. They said: "not today". Respect that: stop.', is_error=True
            ),
            "All right, I left it alone: not today.",
        ),
        (answered("purgeCache", "A person declined this call.", is_error=True), "All right, I left it alone."),
        (
            answered("purgeCache", "Nobody answered in time, so the approval expired.", is_error=True),
            "Nobody answered in time, so purgeCache did not run. Say it again if you still want it.",
        ),
        (answered("purgeCache", "disk full", is_error=True), "purgeCache did not work: disk full"),
        (answered("transferMoney", {"euros": 50}), "Done: 50 € transferred."),
        (answered("transferMoney", {"result": "receipt 7"}), "So the money is there: receipt 7."),
        (answered("ask_researcher", "There are bees."), "The researcher says: There are bees."),
        (
            answered("start_archivist", {"started": True, "note": "It works on."}),
            "The archivist works on it by itself; what it says will appear here.",
        ),
        (answered("ask", {"answers": {"scope": ["file"]}, "skipped": False}), "Thank you, I take: file."),
        (answered("ask", {"answers": {"scope": []}, "skipped": True}), "You skipped that, so I take: nothing."),
    ],
)
def test_results_are_summed_up(messages: list[PromptMessage], text: str) -> None:
    assert reply_to(messages).text == text


def test_what_was_found_is_noted_before_it_is_told() -> None:
    found = answered("searchArchive", {"topic": "bees", "pages": ["one", "two"]})
    assert reply_to(found).call == ("saveNote", {"title": "bees", "text": "2 pages are on the shelf."})

    noted = [*found, *answered("saveNote", {"saved": "bees"})[1:]]
    assert reply_to(noted).call is None
    assert reply_to(noted).text == "The archive has 2 pages on bees. I kept a note of it under “bees”."


def test_a_search_that_failed_is_told_and_nothing_is_noted() -> None:
    reply = reply_to(answered("searchArchive", "the shelf is empty", is_error=True))
    assert (reply.call, reply.text) == (None, "searchArchive did not work: the shelf is empty")


async def test_slow_streams_over_about_two_seconds() -> None:
    clock = FakeClock()
    reading = asyncio.create_task(read_all(DemoModel(clock), "slow"))
    while not reading.done():
        await asyncio.sleep(0)
        clock.advance(timedelta(milliseconds=5))

    events, failure = reading.result()
    assert sum(isinstance(event, TextDelta) for event in events) >= 15
    assert isinstance(events[-1], ReplyFinished)
    assert failure is None
    assert timedelta(seconds=1.5) < clock.now() - START < timedelta(seconds=2.5)


async def test_boom_says_something_before_it_fails() -> None:
    events, failure = await read_all(DemoModel(FakeClock()), "boom")
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Let me look into that. "
    assert failure is not None


async def read_all(model: DemoModel, said: str) -> tuple[list[ModelEvent], ModelError | None]:
    events: list[ModelEvent] = []
    try:
        async for event in model.reply(Prompt(instructions="", messages=asked(said))):
            events.append(event)  # noqa: PERF401  # what came before a failure counts
    except ModelError as error:
        return events, error
    return events, None
