"""After a crash in the middle of an action: did its effect happen? The tool's own probe may know."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from signoff.domain.jsonable import jsonable
from signoff.errors import NotJson, TooLarge
from signoff.ports.clock import Clock
from signoff.ports.deadline import run_within
from signoff.tools.context import ToolContext
from signoff.tools.definition import Tool
from signoff.tools.signature import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """The effect is there; `output` is what the tool would have returned."""

    output: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHappened:
    """The effect is surely not there and cannot still come: the tool may run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The probe cannot tell: a person decides. `why` is shown to them."""

    why: str = "the tool has no probe"


ProbeAnswer: TypeAlias = Happened | NotHappened | Unknown


async def run_probe(
    tool: Tool, bound: Bound, ctx: ToolContext, *, clock: Clock, limit: timedelta, output_bytes_max: int
) -> ProbeAnswer:
    """Ask the tool's probe. Raising, taking longer than `limit`, or answering anything else means `Unknown`.

    `Happened.output` comes back as JSON.
    """
    if tool.probe is None:
        return Unknown()
    try:
        answer = await run_within(tool.probe(bound, ctx), limit=limit, clock=clock)
    except Exception as error:  # noqa: BLE001  # a check that breaks is no answer
        return Unknown(why=f"the tool's probe failed ({type(error).__name__})")
    match answer:
        case Happened(output=output):
            try:
                return Happened(output=jsonable(output, what="the probe's output", bytes_max=output_bytes_max))
            except (NotJson, TooLarge) as error:
                return Unknown(why=f"the probe says it happened, but {error}")
        case NotHappened() | Unknown():
            return answer
        case _:
            return Unknown(why=f"the tool's probe answered a {type(answer).__name__}")
