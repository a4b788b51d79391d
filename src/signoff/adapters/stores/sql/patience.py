"""Trying again what a database refused for now, so that no run fails because a file was locked."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from signoff.adapters.stores.sql.batch import Ended, Job, Outcome
from signoff.errors import StoreBusy

T = TypeVar("T")

_PAUSE_MIN_S = 0.001
#: Small: a busy writer in another process leaves only short gaps between its commits.
_PAUSE_MAX_S = 0.02


class NotYet(Exception):
    """The database has no answer for now; `Patience.insist` asks again."""


class CommitUnknown(StoreBusy):
    """Nobody can tell whether the transaction was written, so it must not run again."""


class Patience:
    """Repeats what is refused for now, for at most `limit` in all."""

    def __init__(self, limit: timedelta, is_transient: Callable[[DBAPIError], bool]) -> None:
        self._limit_s = limit.total_seconds()
        self._is_transient = is_transient

    def insist(self, what: str, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it is not refused; blocks its thread. Raises `StoreBusy`, or what else it raises."""
        give_up_at = time.monotonic() + self._limit_s
        pause = _PAUSE_MIN_S
        while True:
            try:
                return attempt()
            except (DBAPIError, NotYet) as error:
                if isinstance(error, DBAPIError) and not self._is_transient(error):
                    raise
                if time.monotonic() + pause > give_up_at:
                    why = error.orig if isinstance(error, DBAPIError) else error
                    raise StoreBusy(f"the database refused {what} for {self._limit_s:g} s: {why}") from error
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)

    def settle(self, jobs: Sequence[Job], run: Callable[[Sequence[Job]], Ended]) -> list[Ended]:
        """Run the jobs in one transaction; whatever happens, each of them ends.

        If they break it in a way that no repetition heals they go one by one, in order, so that one bad job does
        not take the others with it.
        """
        what = f"transaction {jobs[0].label!r}" + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")
        try:
            return [self.insist(what, lambda: run(jobs))]
        except StoreBusy as busy:
            return [Ended(outcomes=[Outcome(job=job, error=_again(busy)) for job in jobs])]
        except Exception as error:  # noqa: BLE001  # whatever it is, the waiters must hear of it
            if len(jobs) == 1:
                return [Ended(outcomes=[Outcome(job=jobs[0], error=error)])]
        return [ended for job in jobs for ended in self.settle([job], run)]


def part(jobs: Sequence[Job], ended: Sequence[Ended]) -> tuple[list[Job], list[Ended]]:
    """What of `jobs` goes with the next transaction, since the database refused it, and what is over.

    So it is with pieces that nobody waits for: whoever submitted them goes on, and what comes next must not take
    effect without them.
    """
    if any(job.future is not None for job in jobs):
        return [], list(ended)
    refused = [outcome.job for batch in ended for outcome in batch.outcomes if _is_refused(outcome)]
    return refused, [batch for batch in ended if not any(outcome.job in refused for outcome in batch.outcomes)]


def _is_refused(outcome: Outcome) -> bool:
    return isinstance(outcome.error, StoreBusy) and not isinstance(outcome.error, CommitUnknown)


def _again(busy: StoreBusy) -> StoreBusy:
    # One exception object each: an exception collects the traceback of whoever raises it.
    error = type(busy)(str(busy))
    error.__cause__ = busy.__cause__
    return error
