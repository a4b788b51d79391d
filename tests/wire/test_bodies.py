"""What request bodies are taken, and how the others are refused."""

import json
from collections.abc import Mapping

import pytest
from starlette.requests import Request
from starlette.types import Message

from signoff.errors import InvalidInput, TooLarge
from signoff.http import bodies
from signoff.http.bodies import Body, check, parse, read

JSON = {"content-type": "application/json"}


def request(*chunks: bytes, headers: Mapping[str, str] = JSON) -> Request:
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks)}
        for index, chunk in enumerate(chunks, start=1)
    ]

    async def receive() -> Message:
        return messages.pop(0)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw}, receive)


async def test_a_body_in_chunks() -> None:
    body = await read(request(b'{"mess', b'age":"h\\u0000i"}'), bodies.ChatBody, bytes_max=100)

    assert body.message == "h\0i"


async def test_a_body_without_announced_length_is_bounded_while_it_comes() -> None:
    """The last chunk is never asked for: a client cannot make us hold more than the bound and one chunk."""
    endless = request(b"x" * 60, b"x" * 60, b"never read")

    with pytest.raises(TooLarge):
        await read(endless, bodies.ChatBody, bytes_max=100)
    assert (await endless.receive())["body"] == b"never read"


async def test_an_announced_length_over_the_bound_is_refused_unread() -> None:
    announced = request(b"never read", headers={**JSON, "content-length": "101"})

    with pytest.raises(TooLarge):
        await read(announced, bodies.ChatBody, bytes_max=100)
    assert (await announced.receive())["body"] == b"never read"


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"])
async def test_only_json_is_read(type_: str) -> None:
    """A form of another origin can post text with the person's cookies, but not JSON."""
    with pytest.raises(InvalidInput, match="application/json"):
        await read(request(b"{}", headers={"content-type": type_}), bodies.ChatBody, bytes_max=100)


@pytest.mark.parametrize("type_", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"])
async def test_json_by_its_names(type_: str) -> None:
    await read(request(b"{}", headers={"content-type": type_}), bodies.ChatBody, bytes_max=100)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nope",
        b"\xff\xfe",
        b'{"message":"\xff"}',
        b'{"message":"a\nb"}',
        b'{"message":"\\ud800"}',
        b'{"pageContext":{"\\udfff":1}}',
        b'{"pageContext":{"x":NaN}}',
        b'{"pageContext":{"x":-Infinity}}',
        b'{"pageContext":{"x":1e999}}',
        b'{"pageContext":{"x":' + b"9" * 5000 + b"}}",
        b'{"pageContext":' + b'{"x":' * 70 + b"1" + b"}" * 71,
        b"[" * 100_000,
    ],
    ids=lambda raw: raw[:24].decode(errors="replace"),
)
async def test_what_is_no_body(raw: bytes) -> None:
    with pytest.raises(InvalidInput):
        await read(request(raw), bodies.ChatBody, bytes_max=1_000_000)


@pytest.mark.parametrize("value", [None, [], "maybe", 1, True])
def test_only_an_object_is_a_body(value: object) -> None:
    with pytest.raises(InvalidInput, match="must be a JSON object"):
        check(bodies.ApproveBody, value)


def test_a_whole_surrogate_pair_is_text() -> None:
    assert parse(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


WRONG: list[tuple[type[Body], object, str]] = [
    (bodies.ChatBody, {"message": 1}, "message"),
    (bodies.ChatBody, {"message": None}, "message"),
    (bodies.ChatBody, {"threadId": 1}, "threadId"),
    (bodies.ChatBody, {"threadId": ""}, "threadId"),
    (bodies.ChatBody, {"threadId": "a\0b"}, "threadId"),
    (bodies.ChatBody, {"threadId": "x" * 256}, "threadId"),
    (bodies.ChatBody, {"regenerate": "true"}, "regenerate"),
    (bodies.ChatBody, {"regenerate": 1}, "regenerate"),
    (bodies.ChatBody, {"transient": "no"}, "transient"),
    (bodies.ChatBody, {"pageContext": []}, "pageContext"),
    (bodies.ChatBody, {"mode": "later"}, "mode"),
    (bodies.ChatBody, {"attachments": "x"}, "attachments"),
    (bodies.ApproveBody, {}, "toolCallId"),
    (bodies.ApproveBody, {"approve": "false"}, "toolCallId"),
    (bodies.ApproveBody, {"toolCallId": None}, "toolCallId"),
    (bodies.ApproveBody, {"toolCallId": ""}, "toolCallId"),
    (bodies.ApproveBody, {"toolCallId": 7}, "toolCallId"),
    (bodies.ApproveBody, {"toolCallId": ["c"]}, "toolCallId"),
    (bodies.ApproveBody, {"toolCallId": "c", "approve": "false"}, "approve"),
    (bodies.ApproveBody, {"toolCallId": "c", "approve": None}, "approve"),
    (bodies.ApproveBody, {"toolCallId": "c", "approved": False}, "approved"),
    (bodies.ApproveBody, {"toolCallId": "c", "remember": "yes"}, "remember"),
    (bodies.ApproveBody, {"toolCallId": "c", "via": ""}, "via"),
    (bodies.ApproveBody, {"toolCallId": "c", "via": "x" * 65}, "via"),
    (bodies.ApproveBody, {"toolCallId": "c", "via": None}, "via"),
    (bodies.ApproveBody, {"toolCallId": "c", "arguments": "{}"}, "arguments"),
    (bodies.ApproveBody, {"toolCallId": "c", "digest": 1}, "digest"),
    (bodies.ApproveBody, {"toolCallId": "c", "runId": 1}, "runId"),
    (bodies.RejectBody, {"toolCallId": "c", "reason": "x" * 4097}, "reason"),
    (bodies.RejectBody, {"toolCallId": "c", "reason": 1}, "reason"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": []}, "answers"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": {"q": "a"}}, "answers.q"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": {"q": [1]}}, "answers.q.0"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": {"q": ["x" * 4097]}}, "answers.q.0"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": {"q": ["x"] * 101}}, "answers.q"),
    (bodies.AnswerBody, {"toolCallId": "c", "answers": {str(n): [] for n in range(101)}}, "answers"),
    (bodies.SettleBody, {"toolCallId": "c"}, "output"),
    (bodies.BatchBody, {}, "decisions"),
    (bodies.BatchBody, {"decisions": []}, "decisions"),
    (bodies.BatchBody, {"decisions": [{}] * 101}, "decisions"),
    (bodies.BatchBody, {"decisions": ["c"]}, "decisions.0"),
    (bodies.ThreadBody, {"title": None}, "title"),
    (bodies.ThreadBody, {"title": 1}, "title"),
    (bodies.ThreadBody, {"defaultAgent": 1}, "defaultAgent"),
]


@pytest.mark.parametrize(("model", "value", "field"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_field_is_named(model: type[Body], value: object, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check(model, value)

    assert caught.value.field == field


def test_unknown_fields_are_ignored_and_null_is_left_out() -> None:
    body = check(
        bodies.ChatBody,
        {"message": "hi", "threadId": None, "uiCapabilities": {"components": []}, "attachments": [], "x": 1},
    )

    assert (body.message, body.thread_id) == ("hi", None)


def test_the_longest_of_everything_is_taken() -> None:
    check(bodies.RejectBody, {"toolCallId": "c" * 255, "via": "v" * 64, "reason": "x" * 4096})
    check(bodies.AnswerBody, {"toolCallId": "c", "answers": {str(n): ["x" * 4096] for n in range(100)}})
    deep: object = "leaf"
    for _ in range(60):
        deep = {"x": deep}
    parse(json.dumps(deep).encode())
