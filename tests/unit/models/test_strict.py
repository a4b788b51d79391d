from collections.abc import Sequence

import pytest

from signoff.domain.jsonvalue import Json
from signoff.ports.model import (
    AssistantMessage,
    CallRequest,
    CallResult,
    OfferedTool,
    Prompt,
    PromptMessage,
    UserMessage,
)
from signoff.testing.scripted import ScriptedModel
from signoff.testing.strict import PromptRefused, StrictModel, check_prompt

HELLO = UserMessage(text="Hello")


def asks(*ids: str, arguments: Json = None, text: str = "") -> AssistantMessage:
    calls = tuple(CallRequest(id=id_, name="f", arguments={} if arguments is None else arguments) for id_ in ids)
    return AssistantMessage(text=text, calls=calls)


def result(id_: str, name: str = "f") -> CallResult:
    return CallResult(id=id_, name=name, output=None)


@pytest.mark.parametrize(
    "messages",
    [
        [HELLO],
        [HELLO, HELLO],
        [HELLO, AssistantMessage(text="Hi."), HELLO],
        [HELLO, AssistantMessage(text="Hi."), AssistantMessage(text="There."), HELLO],
        [HELLO, asks("1", "2"), result("2"), result("1")],
        [HELLO, asks("1"), result("1"), asks("2"), result("2"), HELLO],
    ],
)
def test_providers_take_these(messages: Sequence[PromptMessage]) -> None:
    check_prompt(Prompt(instructions="", messages=messages))


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "first message must be the user's"),
        ([AssistantMessage(text="Hi."), HELLO], "first message must be the user's"),
        ([HELLO, AssistantMessage(text="Hi.")], "nothing to answer"),
        ([UserMessage(text=" ")], "message 0: the user's message is empty"),
        ([HELLO, asks(text=" "), HELLO], "message 1: the reply has neither text nor calls"),
        ([HELLO, asks("1"), HELLO], r"message 1: no result directly after the calls \['1'\]"),
        ([HELLO, asks("1"), HELLO, result("1")], "no result directly after"),
        ([HELLO, asks("1", "2"), result("1"), HELLO], r"no result directly after the calls \['2'\]"),
        ([HELLO, asks("1", "2"), result("1"), result("1")], "'1' is not one of its calls, or comes twice"),
        ([HELLO, asks("1"), result("1"), result("1")], "message 3: the result of '1' does not follow"),
        ([HELLO, asks("1"), result("2")], "'2' is not one of its calls"),
        ([HELLO, result("1")], "message 1: the result of '1' does not follow"),
        ([HELLO, asks("1", "1"), result("1")], "the call id '1' was used before"),
        ([HELLO, asks("1"), result("1"), asks("1"), result("1")], "message 3: the call id '1' was used before"),
        ([HELLO, asks(""), result("")], "has no id"),
        ([HELLO, asks("1", arguments="{broken"), result("1")], "the arguments of '1' are no JSON object"),
        ([HELLO, asks("1", arguments=[1]), result("1")], "the arguments of '1' are no JSON object"),
        ([HELLO, asks("1"), result("1", name="g")], "of 'g', the call of 'f'"),
    ],
)
def test_providers_refuse_these(messages: Sequence[PromptMessage], complaint: str) -> None:
    with pytest.raises(PromptRefused, match=complaint):
        check_prompt(Prompt(instructions="", messages=messages))


@pytest.mark.parametrize(
    ("names", "kind", "complaint"),
    [
        (["f", "f"], "object", "two tools have one name"),
        (["get order"], "object", "tool name 'get order'"),
        (["f"], "string", "not of type object"),
    ],
)
def test_tools_that_providers_refuse(names: list[str], kind: str, complaint: str) -> None:
    tools = [OfferedTool(name=name, description="", schema={"type": kind}) for name in names]

    with pytest.raises(PromptRefused, match=complaint):
        check_prompt(Prompt(instructions="", messages=[HELLO], tools=tools))


async def test_a_refused_prompt_does_not_reach_the_model_and_is_kept() -> None:
    inner = ScriptedModel(["Hi."])
    strict = StrictModel(inner)

    with pytest.raises(PromptRefused):
        [event async for event in strict.reply(Prompt(instructions="", messages=[HELLO, asks("1"), HELLO]))]
    good = [event async for event in strict.reply(Prompt(instructions="", messages=[HELLO]))]

    assert strict.refusals == ["message 1: no result directly after the calls ['1']"]
    assert inner.calls == 1
    assert len(good) == 2
