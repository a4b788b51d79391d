"""Which entries of a failed run's journal a retry has to forget."""

from collections.abc import Sequence

from signoff.adapters.engine.core.context import BLOCK
from signoff.adapters.engine.core.journal import Kind, Row, State
from signoff.domain.jsonvalue import JsonObject, decode
from signoff.ports.engine import EngineStatus

_REVIVABLE = (EngineStatus.FAILED.value, EngineStatus.DEAD.value)


def last_failures(rows: Sequence[Row]) -> list[Row]:
    """The failures at the end of the journal: no entry that could depend on them follows.

    Branches of one `parallel` do not depend on each other, whatever follows the batch depends on all of them.
    """
    batches = [(row.position, int(row.name)) for row in rows if row.kind == Kind.PARALLEL]

    def branch(position: int) -> tuple[int, int] | None:
        for begin, branches in batches:
            if begin < position <= begin + branches * BLOCK:
                return begin, (position - begin - 1) // BLOCK
        return None

    def depends(later: Row, earlier: Row) -> bool:
        there, here = branch(later.position), branch(earlier.position)
        siblings = there is not None and here is not None and there[0] == here[0] and there[1] != here[1]
        return later.position > earlier.position and not siblings

    return [row for row in rows if _is_failure(row) and not any(depends(later, row) for later in rows)]


def _is_failure(row: Row) -> bool:
    if row.kind == Kind.SIGNAL:
        return row.name.startswith("child:") and row.state == State.DONE and says_failed(row.body)
    return row.state == State.FAILED


def says_failed(outcome: str) -> bool:
    """Whether a child's outcome, as its parent was signalled it, is one that a retry may change."""
    return fields_of(outcome).get("status") in _REVIVABLE


def fields_of(text: str) -> JsonObject:
    """The object that a body is; empty if it is none, or cannot be read."""
    try:
        fields = decode(text)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
