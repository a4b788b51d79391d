"""A prompt in the words of pydantic-ai's model layer."""

import hashlib
import re
from typing import assert_never

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from signoff.domain.jsonvalue import Json, encode
from signoff.ports.model import AssistantMessage, CallRequest, CallResult, Prompt, UserMessage

#: What every provider takes as the id of a call: OpenAI's chat allows 40 characters, Anthropic only these.
_PORTABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def to_messages(prompt: Prompt) -> list[ModelMessage]:
    """The conversation. All that the model is told between two of its replies is one request."""
    messages: list[ModelMessage] = []
    told: list[ModelRequestPart] = []
    for message in prompt.messages:
        match message:
            case UserMessage(text=text):
                told.append(UserPromptPart(content=text))
            case CallResult():
                told.append(_call_result(message))
            case AssistantMessage():
                messages += _request(told, prompt.instructions)
                told = []
                messages.append(ModelResponse(parts=_reply(message)))
            case _:
                assert_never(message)
    return messages + _request(told, prompt.instructions)


def to_parameters(prompt: Prompt) -> ModelRequestParameters:
    """The instructions and the tools on offer."""
    return ModelRequestParameters(
        instruction_parts=[InstructionPart(content=prompt.instructions)] if prompt.instructions else [],
        function_tools=[
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
            for tool in prompt.tools
        ],
    )


def portable_id(id_: str) -> str:
    """`id_` if every provider takes it, else a digest that stands for it in the call and in its result alike."""
    if _PORTABLE_ID.fullmatch(id_):
        return id_
    return f"call_{hashlib.sha256(id_.encode()).hexdigest()[:32]}"


def _request(told: list[ModelRequestPart], instructions: str) -> list[ModelMessage]:
    return [ModelRequest(parts=told, instructions=instructions or None)] if told else []


def _reply(message: AssistantMessage) -> list[ModelResponsePart]:
    # Anthropic refuses text that is only white space; models do send it in front of a call.
    text: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text.strip() else []
    return [*text, *(_call(request) for request in message.calls)]


def _call(request: CallRequest) -> ToolCallPart:
    # Arguments that are no object go out as text: the model layer wraps them the way each provider wants it.
    arguments = request.arguments if isinstance(request.arguments, dict) else _text(request.arguments)
    return ToolCallPart(tool_name=request.name, args=arguments, tool_call_id=portable_id(request.id))


def _call_result(result: CallResult) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=result.name,
        content=_text(result.output),
        tool_call_id=portable_id(result.id),
        outcome="failed" if result.is_error else "success",
    )


def _text(value: Json) -> str:
    # One text, not the value: the model layer would send a list as separate content blocks.
    return value if isinstance(value, str) else encode(value)
