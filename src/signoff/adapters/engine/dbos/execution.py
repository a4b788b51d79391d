"""One activation of a run: as in the embedded engine, with a journal that DBOS keeps."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from dbos import DBOSClient

from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.execution import Execution
from signoff.adapters.engine.core.journal import Hold, Mark
from signoff.adapters.engine.dbos.journal import DbosHold
from signoff.ports.store import Tx

T = TypeVar("T")


@dataclass(slots=True, kw_only=True, eq=False)
class DbosExecution(Execution):
    """Marks that nobody waits for (`now`, `patched`, `parallel`) go with the next write that somebody waits for.

    They are written ahead of it, so nothing durable ever rests on one that a crash could take back.
    """

    client: DBOSClient
    _unwritten: list[Mark] = field(default_factory=list)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def hold(self) -> Hold:
        """See `Execution`."""
        return DbosHold(run_id=self.run_id, fence=self.fence, client=self.client)

    def append_soon(self, mark: Mark) -> None:
        """See `Execution`."""
        self.raise_if_diverged()
        self._unwritten.append(mark)

    async def commit(self, label: str, work: Callable[[Tx], T]) -> T:
        """See `Execution`."""
        await self.flush()
        return await Execution.commit(self, label, work)

    async def flush(self) -> None:
        """Write the marks that nobody waited for."""
        if not self._unwritten:
            return
        async with self._writing:
            marks, hold = list(self._unwritten), self.hold
            if not marks:
                return

            def work(tx: Tx) -> None:
                for mark in marks:
                    hold.append(connection_of(tx), mark)

            await Execution.commit(self, "engine:marks", work)
            del self._unwritten[: len(marks)]
