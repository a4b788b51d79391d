"""The tables that DBOS has no place for: steps on their way through worker groups, and workers that live."""

from sqlalchemy import BigInteger, Column, Integer, Table, Text

from signoff.adapters.engine.core.schema import partial_index
from signoff.adapters.stores.sql.schema import metadata
from signoff.adapters.stores.sql.types import Instant, JsonText, SafeText

#: A dispatched step: the journal has its outcome, this what led to it. `attempt` counts starts, of which the first
#: `spared` are free. `dispatches` counts how often it was enqueued; an older one that turns up is out of date.
#: `failure` is the last attempt's, as the journal would keep it.
engine_tasks = Table(
    "engine_tasks",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("name", SafeText, nullable=False),
    Column("worker_group", SafeText, nullable=False),
    Column("input", JsonText, nullable=False),
    Column("retry", JsonText, nullable=False),
    Column("state", SafeText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("spared", Integer, nullable=False),
    Column("dispatches", Integer, nullable=False),
    Column("failure", Text),
    Column("started_at", Instant),
    Column("next_at", Instant),
    Column("created_at", Instant, nullable=False),
    partial_index("ix_engine_tasks_next", "next_at", where="next_at IS NOT NULL"),
)

#: A worker that has not beaten for a lease is dead.
engine_workers = Table(
    "engine_workers",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("beat_at", Instant, nullable=False),
)
