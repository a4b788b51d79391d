"""A batch settles every member before anything propagates (DESIGN 3.2)."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from signoff.errors import control_flow

T = TypeVar("T")

_PRIORITY = ("diverged", "lease_lost", "released", "cancelled", "suspended")


async def settle_all(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results in call order, after all have settled.

    Of several errors the gravest propagates: diverged, lease lost, cancelled, suspended, then the first ordinary
    one. `asyncio.gather` alone would leave siblings running, and a `TaskGroup` would wrap control flow.
    """
    if len(work) == 1:
        return [await work[0]]
    results = await asyncio.gather(*work, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    for marker in _PRIORITY:
        for error in errors:
            if control_flow(error) == marker:
                raise error
    for error in errors:
        raise error
    return [result for result in results if not isinstance(result, BaseException)]
