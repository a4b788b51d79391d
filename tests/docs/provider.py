"""Replies in OpenAI's Responses dialect, just enough for a reply with one text or one call."""

import json

from tests.unit.models.http_server import Handler, JsonBody, Request, Response


def says(text: str) -> Handler:
    """A reply in text."""
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    delta = {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "content_index": 0,
        "delta": text,
        "logprobs": [],
    }
    return _reply(item, delta)


def calls(name: str, arguments: JsonBody) -> Handler:
    """A reply that asks for a call."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": ""}
    delta = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": json.dumps(arguments)}
    return _reply(item, delta)


def _reply(item: JsonBody, delta: JsonBody) -> Handler:
    events: list[JsonBody] = [
        {"type": "response.created", "response": _response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"output_index": 0, **delta},
        {"type": "response.completed", "response": _response("completed")},
    ]

    async def handle(_request: Request, response: Response) -> None:
        await response.events({**event, "sequence_number": number} for number, event in enumerate(events))
        await response.end()

    return handle


def _response(status: str) -> JsonBody:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1767225600,
        "status": status,
        "model": "gpt-5-mini",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
    }
