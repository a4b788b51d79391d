"""A compiled statement refuses what it could not run."""

import pytest
from sqlalchemy import bindparam, create_engine, select, update

from signoff.adapters.stores.sql.schema import calls, metadata, runs, votes
from signoff.adapters.stores.sql.statement import Clause, Statement

ONE_OF = runs.c.id.in_(["a", "b"])


@pytest.mark.parametrize(
    "clause",
    [
        select(runs.c.id).where(ONE_OF),
        select(runs.c.id).where(runs.c.id.in_(bindparam("ids", expanding=True))),
        update(calls).where(calls.c.run_id.in_(select(runs.c.id).where(runs.c.id.not_in(["a"])))).values(name="x"),
        select(select(runs.c.id).where(ONE_OF).cte("found").c.id),
    ],
)
def test_an_in_list_is_refused_when_the_statement_is_built(clause: Clause) -> None:
    with pytest.raises(ValueError, match="IN list"):
        Statement(clause)


def test_an_in_list_is_refused_where_the_statement_depends_on_the_dialect() -> None:
    upsert = Statement(lambda insert: insert(votes).from_select(["call_id"], select(runs.c.id).where(ONE_OF)))

    with create_engine("sqlite://").connect() as connection, pytest.raises(ValueError, match="IN list"):
        upsert.run(connection)


def test_one_parameter_each_and_a_selection_are_taken() -> None:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    each = Statement(select(runs.c.id).where(runs.c.id.in_([bindparam("one"), bindparam("other")])))
    selection = Statement(select(calls.c.id).where(calls.c.run_id.in_(select(runs.c.id))))

    with engine.connect() as connection:
        assert each.all(connection, one="a", other="b") == []
        assert selection.all(connection) == []
    engine.dispose()
