"""A run's journal, kept by DBOS: each position is a step of the run's DBOS workflow.

The step's name is ``kind:name``; its output is ``{"state", "attempt", "body"}``, so that a failure is a value and a
replay never needs an exception that DBOS has stored.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dbos import DBOSClient, StepInfo
from sqlalchemy import Connection

from signoff.adapters.engine.core.codec import load_value
from signoff.adapters.engine.core.journal import Hold, Mark, Row
from signoff.adapters.engine.dbos.internals import append_step, read_steps
from signoff.domain.jsonvalue import encode

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DbosHold(Hold):
    """The right to write to a run's journal, in the transaction of the store.

    The run's own row says who holds it (and is locked meanwhile); DBOS's tables take the step.
    """

    client: DBOSClient

    def append(self, connection: Connection, mark: Mark) -> None:
        """See `Hold`."""
        self.check(connection)
        append_mark(self.client, connection, self.run_id, mark)


def append_mark(client: DBOSClient, connection: Connection, run_id: str, mark: Mark) -> None:
    """Write a new position; whether that is right is the caller's business."""
    append_step(
        client,
        connection,
        run_id=run_id,
        position=mark.position,
        name=f"{mark.kind}:{mark.name}",
        output=encode({"state": mark.state.value, "attempt": mark.attempt, "body": load_value(mark.body)}),
        at_ms=(mark.at - _EPOCH) // _MILLISECOND,
    )


def load(client: DBOSClient, connection: Connection, run_id: str) -> list[Row]:
    """The whole journal in position order, with what this transaction has written; one query."""
    return [_row(step) for step in read_steps(client, connection, run_id)]


def _row(step: StepInfo) -> Row:
    kind, _, name = step["function_name"].partition(":")
    at = _EPOCH + (step["started_at_epoch_ms"] or 0) * _MILLISECOND
    stored = step["output"]
    state, attempt, body = "unreadable", 0, ""
    if isinstance(stored, dict) and isinstance(stored.get("state"), str) and isinstance(stored.get("attempt"), int):
        # As text again: a row that nobody can read must stop its run, not the query that meets it.
        state, attempt, body = stored["state"], stored["attempt"], encode(stored.get("body"))
    return Row(position=step["function_id"], kind=kind, name=name, state=state, attempt=attempt, body=body, at=at)
