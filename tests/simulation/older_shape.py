"""The turn as it was before its shape first changed: a call after the other, the history selected in its checkpoint."""

import asyncio
from collections.abc import Awaitable
from typing import cast

from signoff.domain.jsonvalue import Json, JsonObject
from signoff.ports.engine import Context
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.loop import run_turn


async def before_patches(deps: TurnDeps, ctx: Context, input_: JsonObject) -> Json:
    """A turn in the older shape. Its journal is what a build without `agent:parallel-tools` and
    `agent:history-select` wrote: no marker, and no position for one."""
    return await run_turn(cast("Context", _Unpatched(ctx)), deps, TurnInput.from_json(input_))


class _Unpatched:
    def __init__(self, inner: Context) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def patched(self, patch_id: str) -> Awaitable[bool]:
        """See `ports.engine.Context`: as if the run's history predated every change."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        answer.set_result(False)
        return answer
