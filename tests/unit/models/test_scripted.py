import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from decimal import Decimal

import pytest

from signoff.domain.run import Usage
from signoff.errors import ModelError
from signoff.ports.model import (
    AssistantMessage,
    CallDelta,
    CallRequest,
    CallResult,
    CallStarted,
    Model,
    ModelCatalog,
    ModelEvent,
    Prompt,
    PromptMessage,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    UserMessage,
)
from signoff.testing.clock import FakeClock
from signoff.testing.scripted import (
    Answer,
    ScriptedModel,
    ask_for,
    asked,
    boom,
    flaky,
    results,
    say,
    step,
    think,
    turn,
    wait_for,
)

SCRIPT: Sequence[Answer] = [ask_for("get_order", {"order_id": "A1"}), "It is at sea."]

ASKED: list[PromptMessage] = [UserMessage(text="Where is A1?")]
ANSWERED: list[PromptMessage] = [
    *ASKED,
    AssistantMessage(text="", calls=(CallRequest(id="c1", name="get_order", arguments={"order_id": "A1"}),)),
    CallResult(id="c1", name="get_order", output={"at": "sea"}),
]


def prompt(messages: Sequence[PromptMessage] = ASKED) -> Prompt:
    return Prompt(instructions="Be brief.", messages=messages)


async def heard(model: Model, messages: Sequence[PromptMessage] = ASKED) -> list[ModelEvent]:
    return [event async for event in model.reply(prompt(messages))]


def text_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_second_process_goes_on_where_the_script_was() -> None:
    """The step comes from the prompt, not from what the object remembers."""
    first, second = ScriptedModel(SCRIPT), ScriptedModel(SCRIPT)

    assert CallStarted(index=0, provider_id="call_1", name="get_order") in await heard(first)
    assert text_of(await heard(second, ANSWERED)) == "It is at sea."
    assert text_of(await heard(second, ANSWERED)) == "It is at sea.", "a replayed call says the same again"
    assert second.calls == 2


async def test_the_script_starts_anew_with_each_message_of_the_user() -> None:
    later = [*ANSWERED, AssistantMessage(text="It is at sea."), UserMessage(text="And now?")]

    assert CallStarted(index=0, provider_id="call_1", name="get_order") in await heard(ScriptedModel(SCRIPT), later)


async def test_a_script_for_each_message() -> None:
    model = ScriptedModel.by_message({"Where is A1?": SCRIPT, "Hello": ["Good morning."]})

    assert text_of(await heard(model, ANSWERED)) == "It is at sea."
    assert text_of(await heard(model, [UserMessage(text="Hello")])) == "Good morning."
    with pytest.raises(ModelError, match="no script for the message 'Goodbye'"):
        await heard(model, [UserMessage(text="Goodbye")])


async def test_a_function_may_look_at_all_that_happened() -> None:
    def answer(prompt: Prompt) -> Answer:
        return f"{asked(prompt)} step {step(prompt)}: {[result.output for result in results(prompt)]}"

    events = await heard(ScriptedModel.from_function(answer), ANSWERED)

    assert text_of(events) == "Where is A1? step 1: [{'at': 'sea'}]"


async def test_a_script_that_ends_too_early_is_an_error_no_retry_heals() -> None:
    with pytest.raises(ModelError, match="has 1 turns") as caught:
        await heard(ScriptedModel(["Hello."]), ANSWERED)
    assert not caught.value.transient


async def test_parallel_calls_interleave_and_keep_their_index() -> None:
    model = ScriptedModel([turn("Both.", ask_for("a", {"x": 1}, id="one"), ask_for("b", "broken {", id="two"))])

    events = await heard(model)

    assert events[1:-1] == [
        CallStarted(index=0, provider_id="one", name="a"),
        CallStarted(index=1, provider_id="two", name="b"),
        CallDelta(index=0, arguments='{"x'),
        CallDelta(index=1, arguments="brok"),
        CallDelta(index=0, arguments='":1}'),
        CallDelta(index=1, arguments="en {"),
    ]


async def test_the_tokens_are_the_words() -> None:
    """Read: `Be brief`, `Where is A1`. Said: `It is at sea`. The same in every process."""
    model = ScriptedModel(["It is at sea."], usd_per_token=Decimal("0.5"))

    assert (await heard(model))[-1] == ReplyFinished(
        usage=Usage(input_tokens=5, output_tokens=4), model="scripted", cost_usd=Decimal("4.5")
    )


async def test_given_tokens_win() -> None:
    usage = Usage(input_tokens=7, output_tokens=1, cache_read_tokens=3)

    assert (await heard(ScriptedModel([turn("Hi.", usage=usage)])))[-1] == ReplyFinished(usage=usage, model="scripted")


async def test_text_comes_in_words_or_in_the_given_pieces() -> None:
    model = ScriptedModel([turn(think("Hm."), say("It is  here."), say("Over", deltas=["Ov", "er"]))])

    assert (await heard(model))[:-1] == [
        ReasoningDelta(text="Hm."),
        *(TextDelta(text=text) for text in ("It ", "is  ", "here.", "Ov", "er")),
    ]
    with pytest.raises(ValueError, match="'Ov'"):
        say("Over", deltas=["Ov"])


async def test_the_stream_may_die_behind_text() -> None:
    model = ScriptedModel([turn("Let me", boom("gone", transient=True))])
    events: list[ModelEvent] = []

    async def listen() -> None:
        async for event in model.reply(prompt()):
            events.append(event)  # noqa: PERF401  # kept although the stream dies

    with pytest.raises(ModelError, match="gone") as caught:
        await listen()

    assert text_of(events) == "Let me"
    assert caught.value.transient


async def test_a_flaky_turn_succeeds_after_its_failures() -> None:
    model = ScriptedModel([flaky("Hello.", failures=2)])

    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await heard(model)
        assert caught.value.transient

    assert text_of(await heard(model)) == "Hello."
    assert model.calls == 3


async def test_delays_follow_the_clock() -> None:
    clock = FakeClock()
    model = ScriptedModel([say("one two", delay=timedelta(seconds=1))], clock=clock)
    events = model.reply(prompt())

    for word in ("one ", "two"):
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.advance(timedelta(seconds=1))
        assert await waiting == TextDelta(text=word)


async def test_a_test_can_hold_the_stream() -> None:
    gate = asyncio.Event()
    model = ScriptedModel([turn("a", wait_for(gate), "b")])

    async with aclosing(model.reply(prompt())) as events:  # type: ignore[type-var]  # a generator, though the port hides it
        assert await anext(events) == TextDelta(text="a")
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        assert await waiting == TextDelta(text="b")


def test_it_is_a_catalog_of_itself() -> None:
    model = ScriptedModel([])
    catalog: ModelCatalog = model

    assert catalog.model("openai:gpt-5-mini") is model
