"""An operator's access to a database: the store and the engine, driving nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from signoff.ports.clock import Clock
from signoff.service.operate import Operator
from signoff.turn.events import Events

DATABASE_HELP = "SQLAlchemy URL of the database, e.g. sqlite:///signoff.db."


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDeps:
    """What settling a run needs (`turn.deps.SettleDeps`)."""

    clock: Clock
    events: Events = field(init=False)
    notifies: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", Events(self.clock))


@asynccontextmanager
async def operator(database: str) -> AsyncIterator[Operator]:
    """An `Operator` on `database`. The schema must be up to date; no run is executed here."""
    from signoff.adapters.engine.embedded import EmbeddedEngine
    from signoff.adapters.stores.sql import SqlStore
    from signoff.adapters.system import SystemClock, SystemIds
    from signoff.runners.settler import Settler

    clock = SystemClock()
    store = SqlStore(database, migrate=False)
    engine = EmbeddedEngine(store, clock=clock, ids=SystemIds(clock))
    deps = OperatorDeps(clock=clock)
    await store.open()
    try:
        await engine.open(Settler(deps, engine), drive=False)
        yield Operator(store, engine, deps)
        await engine.drain()
    finally:
        await store.close()
