"""A batch settles every member before anything propagates (DESIGN 3.2)."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from signoff.errors import gravity

T = TypeVar("T")


async def settle_all(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results in call order, after all have settled.

    Of several errors the gravest propagates (`errors.gravity`), and of equals the first. `asyncio.gather` alone
    would leave siblings running, and a `TaskGroup` would wrap control flow.
    """
    if len(work) == 1:
        return [await work[0]]
    results = await asyncio.gather(*work, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=gravity)
    return [result for result in results if not isinstance(result, BaseException)]
