"""The `ask` tool: lets the model put questions to the user. `Agent(tools=[..., ask])` offers it."""

from typing import Annotated

from pydantic import Field

from signoff.domain.call import ToolKind
from signoff.domain.elicitation import Question, Text
from signoff.domain.jsonvalue import JsonObject
from signoff.tools.context import ToolContext
from signoff.tools.definition import Tool
from signoff.tools.signature import description_of, read_signature

ASK = "ask"


async def _ask(
    questions: Annotated[list[Question], Field(min_length=1, max_length=5)],
    ctx: ToolContext,
    preamble: Text | None = None,
) -> JsonObject:
    """Ask the user one to five questions and wait for the answers.

    Prefer questions with options, and give each sensible defaults: they stand when the user skips. Ask all
    you need at once, and only what you cannot find out by yourself.

    Args:
        questions: A question is either a pick (`options`, and `defaults` drawn from them) or typed (`input`).
        preamble: One or two sentences above the questions: why you ask.
    """
    return (await ctx.ask(questions, preamble)).as_json()


_signature, _run = read_signature(_ask, tool=ASK)

ask = Tool(name=ASK, description=description_of(_ask.__doc__), kind=ToolKind.ASK, signature=_signature, run=_run)
