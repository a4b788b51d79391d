"""The same reply in the three streaming dialects: reasoning, text, two calls whose arguments interleave, usage."""

from typing import TypeAlias

from tests.unit.models.http_server import JsonBody

THOUGHT = "Two orders."
TEXT = ("Looking ", "both up.")
#: Id, name and the two pieces of the arguments.
Calls: TypeAlias = tuple[tuple[str, str, tuple[str, str]], ...]

CALLS: Calls = (
    ("call_a", "get_order", ('{"order_id":', ' "A1"}')),
    ("call_b", "get_order", ('{"order_id":', ' "B2"}')),
)


def openai_responses(model: str = "gpt-5-mini") -> list[JsonBody | str]:
    def response(status: str, **more: object) -> JsonBody:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1767225600,
            "status": status,
            "model": model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            **more,
        }

    thinking = {"type": "reasoning", "id": "rs_1", "summary": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
    events: list[JsonBody] = [
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": thinking},
        {
            "type": "response.reasoning_summary_part.added",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "part": {"type": "summary_text", "text": ""},
        },
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": THOUGHT,
        },
        {"type": "response.output_item.done", "output_index": 0, "item": thinking},
        {"type": "response.output_item.added", "output_index": 1, "item": message},
    ]
    events += [
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 1,
            "content_index": 0,
            "delta": text,
            "logprobs": [],
        }
        for text in TEXT
    ]
    items = [
        {"type": "function_call", "id": f"fc_{id_}", "call_id": id_, "name": name, "arguments": ""}
        for id_, name, _ in CALLS
    ]
    events += [
        {"type": "response.output_item.added", "output_index": 2 + index, "item": item}
        for index, item in enumerate(items)
    ]
    events += [
        {
            "type": "response.function_call_arguments.delta",
            "item_id": f"fc_{id_}",
            "output_index": 2 + index,
            "delta": arguments[piece],
        }
        for piece in (0, 1)
        for index, (id_, _, arguments) in enumerate(CALLS)
    ]
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 400, "cache_write_tokens": 0},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 1050,
    }
    events.append({"type": "response.completed", "response": response("completed", usage=usage)})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def openai_chat(model: str = "gpt-5-mini", calls: Calls = CALLS) -> list[JsonBody | str]:
    def chunk(delta: JsonBody, finish: str | None = None) -> JsonBody:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1767225600,
            "model": model,
            "choices": [choice],
        }

    deltas: list[JsonBody] = [{"role": "assistant", "reasoning_content": THOUGHT}]
    deltas += [{"content": text} for text in TEXT]
    deltas += [
        {
            "tool_calls": [
                {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
                for index, (id_, name, _) in enumerate(calls)
            ]
        }
    ]
    deltas += [
        {"tool_calls": [{"index": index, "function": {"arguments": arguments[piece]}}]}
        for piece in (0, 1)
        for index, (_, _, arguments) in enumerate(calls)
    ]
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 50,
        "total_tokens": 1050,
        "prompt_tokens_details": {"cached_tokens": 400},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    return [
        *(chunk(delta) for delta in deltas),
        chunk({}, finish="tool_calls" if calls else "stop"),
        {**chunk({}), "choices": [], "usage": usage},
        "[DONE]",
    ]


def anthropic(model: str = "claude-haiku-4-5") -> list[JsonBody | str]:
    def block(index: int, start: JsonBody, *deltas: JsonBody) -> list[JsonBody]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        ]

    usage = {"input_tokens": 600, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 0, "output_tokens": 1}
    message: JsonBody = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[JsonBody] = [{"type": "message_start", "message": message}]
    events += block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": THOUGHT},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    events += block(1, {"type": "text", "text": ""}, *({"type": "text_delta", "text": text} for text in TEXT))
    for index, (id_, name, _) in enumerate(CALLS):
        events += block(2 + index, {"type": "tool_use", "id": id_, "name": name, "input": {}})
    events += [
        {
            "type": "content_block_delta",
            "index": 2 + index,
            "delta": {"type": "input_json_delta", "partial_json": arguments[piece]},
        }
        for piece in (0, 1)
        for index, (_, _, arguments) in enumerate(CALLS)
    ]
    events += [{"type": "content_block_stop", "index": index} for index in range(4)]
    delta = {"stop_reason": "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 50}})
    return [*events, {"type": "message_stop"}]
