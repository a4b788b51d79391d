"""LangGraph on its SQLite checkpointer: a graph of model and tools, with `interrupt` inside the action.

`durability="sync"`: a checkpoint is written before the next step begins. To approve is to drive the graph again with
`Command(resume=...)`; a graph that has stopped at an interrupt is parked. Runs in an environment of its own.
"""

import json
import time
from pathlib import Path

import harness
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

acted: dict[str, float] = {}


class FakeModel(BaseChatModel):
    """First it looks something up, then it acts, then it has nothing more to ask."""

    @property
    def _llm_type(self):
        return "fake"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):  # noqa: ARG002
        for delta in harness.DELTAS:
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=delta))
            if run_manager is not None:
                await run_manager.on_llm_new_token(delta, chunk=chunk)
            yield chunk
        said = sum(isinstance(message, AIMessage) for message in messages)
        if said < 2:
            name, arguments = ("lookup", "transfer")[said], json.dumps({"key": messages[0].content})
            call = {"name": name, "args": arguments, "id": f"call_{said}", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))


@tool
async def lookup(key: str) -> dict:
    """Read."""
    return harness.read(key)


@tool
async def transfer(key: str) -> dict:
    """Act."""
    if not interrupt({"tool": "transfer", "key": key}):
        return {"rejected": True}
    acted[key] = time.perf_counter()
    return {"done": key}


@task
async def tiny(number: int) -> int:
    return number


class LangGraph:
    """`harness.Contender`."""

    acted = acted

    def __init__(self, database: Path) -> None:
        self._database = database

    async def open(self):
        self._context = AsyncSqliteSaver.from_conn_string(str(self._database))
        saver = await self._context.__aenter__()
        await saver.setup()
        model = FakeModel()

        async def ask(state, config):
            return {"messages": [await model.ainvoke(state["messages"], config)]}

        def wants_tools(state):
            return "tools" if state["messages"][-1].tool_calls else END

        graph = StateGraph(MessagesState)
        graph.add_node("model", ask)
        graph.add_node("tools", ToolNode([lookup, transfer]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", wants_tools, ["tools", END])
        graph.add_edge("tools", "model")
        self._graph = graph.compile(checkpointer=saver)

        @entrypoint(checkpointer=saver)
        async def steps(count: int) -> int:
            for number in range(count):
                await tiny(number)
            return count

        self._steps = steps

    async def start(self, key):
        await self._drive(key, {"messages": [HumanMessage(key)]})

    async def approve(self, key):
        await self._drive(key, Command(resume=True))
        assert key in acted

    async def records(self, name, count):
        await self._steps.ainvoke(count, _config(name), durability="sync")

    def commits(self):
        return None

    async def _drive(self, key, given):
        async for _ in self._graph.astream(given, _config(key), stream_mode="messages", durability="sync"):
            pass  # whoever watches has seen a delta


def _config(key):
    return {"configurable": {"thread_id": key}}


if __name__ == "__main__":
    harness.main(LangGraph)
