"""An operator's access to a database: the store and the engine, driving nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from signoff.errors import ConfigurationError
from signoff.ports.clock import Clock
from signoff.ports.engine import Engine
from signoff.ports.ids import Ids
from signoff.service.operate import Operator
from signoff.turn.events import Events

if TYPE_CHECKING:
    from signoff.adapters.stores.sql import SqlStore

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
    from signoff.adapters.stores.sql import SqlStore
    from signoff.adapters.system import SystemClock, SystemIds
    from signoff.runners.settler import Settler

    clock = SystemClock()
    store = SqlStore(database, migrate=False)
    deps = OperatorDeps(clock=clock)
    await store.open()
    try:
        engine = await _engine(store, database, clock, SystemIds(clock))
        await engine.open(Settler(deps, engine), drive=False)
        yield Operator(store, engine, deps)
        await engine.drain()
    finally:
        await store.close()


async def _engine(store: "SqlStore", database: str, clock: Clock, ids: Ids) -> Engine:
    """The engine that the database's runs belong to."""
    from signoff.adapters.engine.found import engine_of

    if await engine_of(store) == "embedded":
        from signoff.adapters.engine.embedded import EmbeddedEngine

        return EmbeddedEngine(store, clock=clock, ids=ids)
    try:
        from signoff.adapters.engine.dbos import DbosEngine
    except ImportError as error:
        raise ConfigurationError("this database's runs are on DBOS: pip install 'signoff[dbos]'") from error
    return DbosEngine(store, url=database, clock=clock, ids=ids)
