"""Statements that are compiled once and then run without SQLAlchemy's work per execution.

A turn runs dozens of statements, always the same ones. `Statement` compiles a Core construct once per dialect and
hands the driver plain text and plain values, on SQLAlchemy's connection and in its transaction: half the CPU of
`Connection.execute`. Types, names, dialects and errors stay SQLAlchemy's business; its cursor events do not fire.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy import Connection, Delete, Insert, Select, Table, Update, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter, ColumnElement
from sqlalchemy.types import TypeEngine

from signoff.adapters.stores.sql.types import Converted

R = TypeVar("R", bound="Value")

# Values of columns are as wide as the schema: `Any` is what a row is to a driver.
Clause: TypeAlias = Select[Any] | Insert | Update | Delete
Upsert: TypeAlias = sqlite.Insert | postgresql.Insert
Processor: TypeAlias = Callable[[Any], Any]
RowValues: TypeAlias = Sequence[Any]

_INSERT: dict[str, Callable[[Table], Upsert]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def execute(connection: Connection, sql: str, values: Any = ()) -> DBAPICursor:
    """Execute through the driver's cursor; its errors come out as SQLAlchemy's, as from `Connection.execute`."""
    pooled = connection.connection
    cursor = pooled.cursor()
    driver_error = connection.dialect.loaded_dbapi.Error
    try:
        cursor.execute(sql, values)
    except driver_error as error:
        dialect = connection.dialect
        lost = dialect.is_disconnect(error, pooled, cursor)
        if lost:
            connection.invalidate(error)
        failure = DBAPIError.instance(
            sql, values, error, driver_error, connection_invalidated=lost, dialect=dialect, hide_parameters=True
        )
        raise failure from error
    return cursor


class Statement:
    """One statement with named parameters. `run`, `one` and `all` take their values by name."""

    def __init__(self, build: Clause | Callable[[Callable[[Table], Upsert]], Clause]) -> None:
        """`build` is the statement, or a function that makes it from the dialect's own `insert` (for upserts).

        Raises:
            ValueError: it has an IN list, whose length SQLAlchemy learns only when it executes. A function is asked
                at its first use.
        """
        self._build = build if callable(build) else _without_lists(build)
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, **values: object) -> int:
        """Execute; returns how many rows it touched."""
        compiled = self._on(connection.dialect)
        return execute(connection, compiled.sql, compiled.bind(values)).rowcount

    def one(self, connection: Connection, **values: object) -> RowValues | None:
        """The first row, or None."""
        rows = self.all(connection, **values)
        return rows[0] if rows else None

    def all(self, connection: Connection, **values: object) -> list[RowValues]:
        """All rows, as values of the columns' types in the order of the columns."""
        compiled = self._on(connection.dialect)
        return compiled.read(execute(connection, compiled.sql, compiled.bind(values)).fetchall())

    def _on(self, dialect: Dialect) -> "_Compiled":
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            build = self._build
            clause = _without_lists(build(_INSERT[dialect.name])) if callable(build) else build
            compiled = self._compiled[dialect.name] = _compile(clause, dialect)
        return compiled


def _without_lists(clause: Clause) -> Clause:
    for element in visitors.iterate(clause):
        if isinstance(element, BindParameter) and element.expanding:
            raise ValueError(
                "a compiled statement cannot take an IN list: compare with one parameter each (`or_`, or a list of "
                f"`bindparam`), or select what is looked for; in: {clause}"
            )
    return clause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """Text for the driver, and what turns our values into the driver's and back."""

    sql: str
    positional: bool
    binds: tuple[tuple[str, Processor | None], ...]
    constants: dict[str, object]
    results: tuple[tuple[int, Processor], ...]

    def bind(self, values: dict[str, object]) -> Any:
        if self.constants:
            values = self.constants | values
        bound = [
            value if (value := values[name]) is None or process is None else process(value)
            for name, process in self.binds
        ]
        if self.positional:
            return bound
        return {name: value for (name, _), value in zip(self.binds, bound, strict=True)}

    def read(self, rows: Sequence[RowValues]) -> list[RowValues]:
        if not self.results:
            return list(rows)
        read: list[RowValues] = []
        for row in rows:
            values = list(row)
            for position, process in self.results:
                if (value := values[position]) is not None:
                    values[position] = process(value)
            read.append(values)
        return read


def _compile(clause: Clause, dialect: Dialect) -> _Compiled:
    compiled = clause.compile(dialect=dialect)
    parameters: dict[str, BindParameter[Any]] = compiled.binds
    names: Iterable[str] = (compiled.positiontup or ()) if compiled.positional else parameters
    results = []
    for position, column in enumerate(clause.exported_columns):
        process = _from_driver(column.type, dialect)
        if process is not None:
            results.append((position, process))
    return _Compiled(
        sql=str(compiled),
        positional=compiled.positional,
        binds=tuple((name, _to_driver(parameters[name].type, dialect)) for name in names),
        constants={name: parameter.value for name, parameter in parameters.items() if not parameter.required},
        results=tuple(results),
    )


def _to_driver(type_: TypeEngine[Any], dialect: Dialect) -> Processor | None:
    if isinstance(type_, Converted):
        return type_.to_driver()
    return type_.dialect_impl(dialect).bind_processor(dialect)


def _from_driver(type_: TypeEngine[Any], dialect: Dialect) -> Processor | None:
    if isinstance(type_, Converted):
        return type_.from_driver()
    return type_.dialect_impl(dialect).result_processor(dialect, None)


class Value(Protocol):
    """A frozen dataclass of `domain`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Entity(Generic[R]):
    """A table that holds values of one dataclass: each field has a column of its name."""

    def __init__(self, table: Table, value: type[R]) -> None:
        self._table = table
        self._value = value
        self._names = tuple(field.name for field in fields(value))
        self._of = attrgetter(*self._names)
        self._insert = Statement(self._build_insert)

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        """The columns in the order of the fields."""
        return [self._table.c[name] for name in self._names]

    def select(self) -> Select[Any]:
        """All rows, with the columns that `read` expects."""
        return select(*self.columns)

    def insert(self, connection: Connection, row: R) -> bool:
        """Insert; False if a row with this key exists (then nothing is written)."""
        return self._insert.run(connection, **self.values(row)) == 1

    def values(self, row: R) -> dict[str, object]:
        """The fields by name, as a statement takes them."""
        return dict(zip(self._names, self._of(row), strict=True))

    def read(self, values: RowValues) -> R:
        """The value that a row of `columns` holds."""
        return self._value(**dict(zip(self._names, values, strict=True)))

    def read_one(self, values: RowValues | None) -> R | None:
        """As `read`; None for no row."""
        return None if values is None else self.read(values)

    def _build_insert(self, insert: Callable[[Table], Upsert]) -> Upsert:
        # DO NOTHING instead of an error: in PostgreSQL an error would spoil the whole transaction.
        return insert(self._table).values(parameters(self._table, self._names)).on_conflict_do_nothing()


def parameters(table: Table, names: Iterable[str]) -> dict[str, BindParameter[Any]]:
    """A parameter of its own name and type for each column, for `values(...)`."""
    return {name: bindparam(name, type_=table.c[name].type) for name in names}
