"""The engine's tables. They live in the store's database, so that a journal changes together with what people read."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, false, text

from signoff.adapters.stores.sql.schema import metadata
from signoff.adapters.stores.sql.types import Instant, JsonText, SafeText, Word
from signoff.ports.engine import EngineStatus

#: SQLite numbers rows only through its own INTEGER PRIMARY KEY.
_RowNumber = BigInteger().with_variant(Integer(), "sqlite")


def partial_index(name: str, *columns: str, where: str) -> Index:
    """An index over the rows that `where` selects, in both databases."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


#: `fence` rises with every claim: what an earlier holder of the run still wants to write is refused.
#: `linked` is false for a detached run: its parent's end and cancellation do not touch it.
#: `compensate`: the run was cancelled and is to be undone before it ends.
engine_runs = Table(
    "engine_runs",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("workflow", SafeText, nullable=False),
    Column("status", Word(EngineStatus), nullable=False),
    Column("input", JsonText, nullable=False),
    Column("output", JsonText),
    Column("error_type", SafeText),
    Column("error", SafeText),
    Column("error_code", SafeText),
    Column("parent_id", SafeText),
    Column("linked", Boolean, nullable=False),
    Column("namespace", SafeText, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("crashes", Integer, nullable=False),
    Column("owner", SafeText),
    Column("lease_until", Instant),
    Column("wake_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("compensate", Boolean, nullable=False, server_default=false()),
    Index("ix_engine_runs_status", "status", "id"),
    partial_index("ix_engine_runs_owner", "owner", where="owner IS NOT NULL"),
    partial_index("ix_engine_runs_wake", "wake_at", where="wake_at IS NOT NULL"),
    partial_index("ix_engine_runs_parent", "parent_id", where="parent_id IS NOT NULL"),
    partial_index("ix_engine_runs_ended", "ended_at", where="ended_at IS NOT NULL"),
)

#: `body` is JSON text (see `codec`), kept as it was written: a broken row must not stop the query that meets it.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", SafeText, nullable=False),
    Column("name", SafeText, nullable=False),
    Column("state", SafeText, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("body", Text, nullable=False),
    Column("at", Instant, nullable=False),
    sqlite_with_rowid=False,
)

#: `id` is the order of arrival; `position` is where the run took it, null while it waits to be taken.
signals = Table(
    "signals",
    metadata,
    Column("id", _RowNumber, primary_key=True),
    Column("run_id", SafeText, nullable=False),
    Column("dedup_key", SafeText, nullable=False),
    Column("name", SafeText, nullable=False),
    Column("payload", Text, nullable=False),
    Column("position", BigInteger),
    Column("at", Instant, nullable=False),
    Index("ix_signals_dedup", "run_id", "dedup_key", unique=True),
    partial_index("ix_signals_untaken", "run_id", "name", where="position IS NULL"),
)

#: What a run waits for, from the first time it asked until the outcome is journaled.
waits = Table(
    "waits",
    metadata,
    Column("run_id", SafeText, primary_key=True),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("name", SafeText, nullable=False),
    Column("deadline", Instant),
    sqlite_with_rowid=False,
)
