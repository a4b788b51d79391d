"""Serves the "tools" group: runs one admitted call, after a last look at what was approved."""

from signoff.approvals.preflight import Denied, Done, Ready, run_preflight
from signoff.domain.call import Call, ToolKind
from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.ports.engine import TaskInfo
from signoff.ports.events import EventName
from signoff.tools.arguments import InvalidArguments
from signoff.tools.context import ToolContext
from signoff.tools.definition import Tool
from signoff.tools.invoke import Asked, Failed, Succeeded, invoke
from signoff.tools.probe import Happened, NotHappened, Unknown, run_probe
from signoff.tools.signature import Bound
from signoff.turn.card import digest_of
from signoff.turn.claim import deadline_grace_over
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.tool_context import tool_context
from signoff.turn.tool_outcome import plain


class ToolCalls:
    """The handler of the "tools" group. Finds all it needs from the task alone, on whichever worker takes it."""

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps

    async def __call__(self, task: JsonObject, info: TaskInfo) -> Json:
        """Run, or probe, one call.

        Args:
            task: ``{turn, callId, mode, answers}``; `mode` is "run" or "probe".

        Returns:
            For "run" what `outcome.Outcome.from_json` reads; for "probe" ``{happened, output?}`` or ``{unknown}``.
        """
        turn = TurnInput.from_json(as_object(task["turn"], what="a task's turn"))
        call = await self._load(str(task["callId"]))
        agent = self._deps.agents.get(turn.agent)
        tool = None if agent is None else agent.toolset.get(call.name)
        if tool is None:
            return _failed(f"the tool {call.name!r} is no longer available; it did not run")
        try:
            bound = tool.parse(call.final_arguments)
        except InvalidArguments as error:
            return _failed(f"the tool has changed since this call was made; it did not run: {error}")
        answers = task.get("answers")
        ctx = tool_context(
            self._deps,
            turn,
            call,
            info=info,
            answers=tuple(as_object(item, what="an answer") for item in answers) if isinstance(answers, list) else (),
        )
        if task.get("mode") == "probe":
            return await self._probe(tool, bound, ctx)
        refusal = await self._last_look(tool, bound, call, ctx) if call.kind is ToolKind.ACTION else None
        return refusal if refusal is not None else await self._run(tool, bound, call, turn, ctx)

    async def _load(self, call_id: str) -> Call:
        call = await self._deps.store.peek(lambda tx: tx.call(call_id))
        if call is None:
            raise LookupError(f"the row of call {call_id!r} is gone")
        return call

    async def _last_look(self, tool: Tool, bound: Bound, call: Call, ctx: ToolContext) -> JsonObject | None:
        """Right before the effect: is this what was approved, in time, and does nothing speak against it now?"""
        settings, now = self._deps.settings, self._deps.clock.now()
        if deadline_grace_over(call, now=now, grace=settings.grace):
            return _failed("the approval was given in time, but the action could not start before it became too old")
        what = digest_of(tool=tool.name, schema_version=tool.schema_version, arguments=bound.arguments)
        if call.digest != what:
            return _failed("what would run is not what was approved; it did not run", mismatch=True)
        checked = await run_preflight(
            tool.execute_check,
            bound,
            ctx,
            clock=self._deps.clock,
            timeout=settings.tool_timeout,
            output_bytes_max=settings.output_bytes_max,
        )
        match checked:
            case Denied(reason=reason):
                return _failed(reason)
            case Done(output=output):
                return {"status": "completed", "output": plain(output)}
            case Ready():
                return None

    async def _run(self, tool: Tool, bound: Bound, call: Call, turn: TurnInput, ctx: ToolContext) -> JsonObject:
        deps = self._deps
        started_at = deps.clock.now()

        def on_retry(retry: int, error: Exception) -> None:
            deps.events.emit(
                EventName.TOOL_RETRY,
                run_id=turn.run_id,
                thread_id=turn.thread_id,
                call_id=call.id,
                tool=tool.name,
                retry=retry,
                error_type=type(error).__name__,
            )

        outcome = await invoke(
            tool,
            bound,
            ctx,
            clock=deps.clock,
            output_bytes_max=deps.settings.output_bytes_max,
            default_timeout=deps.settings.tool_timeout,
            on_retry=on_retry,
        )
        match outcome:
            case Succeeded(output=output):
                return {"status": "completed", "output": output, "startedAt": started_at.isoformat()}
            case Failed(error=error):
                return _failed(error)
            case Asked(request=request, index=index):
                return {"status": "asked", "request": request, "index": index}

    async def _probe(self, tool: Tool, bound: Bound, ctx: ToolContext) -> JsonObject:
        settings = self._deps.settings
        answer = await run_probe(
            tool,
            bound,
            ctx,
            clock=self._deps.clock,
            limit=settings.tool_timeout,
            output_bytes_max=settings.output_bytes_max,
        )
        match answer:
            case Happened(output=output):
                return {"happened": True, "output": plain(output)}
            case NotHappened():
                return {"happened": False}
            case Unknown(why=why):
                return {"unknown": True, "why": why}


def _failed(error: str, *, mismatch: bool = False) -> JsonObject:
    return {"status": "failed", "error": error, **({"mismatch": True} if mismatch else {})}
