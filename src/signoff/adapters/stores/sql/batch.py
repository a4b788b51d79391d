"""Several pieces of work in one database transaction, in which one failing member harms no other."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from signoff.adapters.stores.sql.statement import execute
from signoff.adapters.stores.sql.tx import SqlTx
from signoff.ports.store import Emission

_SAVEPOINT = "SAVEPOINT member"
_RELEASE = "RELEASE SAVEPOINT member"
_ROLLBACK_TO = "ROLLBACK TO SAVEPOINT member"


class CommitFaults(Protocol):
    """Told around each commit, in the thread that commits. For simulations that kill a store at a chosen commit.

    What either method raises makes the store behave like a killed process: nobody hears of the transaction, and
    nothing is accepted afterwards. Killed before the commit nothing is written, after it everything is.
    """

    def before_commit(self, labels: Sequence[str]) -> None:
        """About to commit the transactions with these labels together."""
        ...

    def after_commit(self, labels: Sequence[str]) -> None:
        """They are committed; nobody has been told yet."""
        ...


class StoreKilled(BaseException):
    """`CommitFaults` killed the store. Never leaves the SQL store."""


class Life:
    """Whether the store lives: asks `CommitFaults`, if there are any, and once killed nothing commits any more."""

    def __init__(self, faults: CommitFaults | None) -> None:
        self._faults = faults
        self.over = False

    def before_commit(self, labels: Sequence[str]) -> None:
        """Raises `StoreKilled` if the store dies here, or is dead."""
        if self.over:
            raise StoreKilled
        if self._faults is not None:
            self._ask(self._faults.before_commit, labels)

    def after_commit(self, labels: Sequence[str]) -> None:
        """Raises `StoreKilled` if the store dies here."""
        if self._faults is not None:
            self._ask(self._faults.after_commit, labels)

    def _ask(self, hook: Callable[[Sequence[str]], None], labels: Sequence[str]) -> None:
        try:
            hook(labels)
        except BaseException as error:
            self.over = True
            raise StoreKilled from error


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Job:
    """Work that was submitted. `future` is None for `transact_soon`: nobody waits for it."""

    label: str
    work: Callable[[SqlTx], Any]
    future: asyncio.Future[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one job: its result, or the error that undid it. `tx` holds what to do after the commit."""

    job: Job
    result: object = None
    error: BaseException | None = None
    tx: SqlTx | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A batch that is over, for the event loop to hear of.

    `emitted`: what readers of streams hear of. `rung`: the streams whose subscribers wake up besides.
    """

    outcomes: Sequence[Outcome]
    callbacks: Sequence[Callable[[], None]] = ()
    emitted: Sequence[Emission] = ()
    rung: Sequence[str] = ()

    @property
    def streams(self) -> frozenset[str]:
        """The streams whose subscribers wake up."""
        return frozenset([*(emission.stream_id for emission in self.emitted), *self.rung])


class Dialect(Protocol):
    """Where the two databases differ in a transaction. An instance may serve one batch only."""

    def begin(self, connection: Connection) -> None:
        """Begin to write."""
        ...

    def before_commit(self, connection: Connection, streams: frozenset[str]) -> None:
        """The last statement: tell readers of `streams` in other processes, if the database can."""
        ...

    def commit(self, connection: Connection) -> None:
        """Commit; returns only if that is certain, raises only if nothing was written or nobody can know."""
        ...

    def is_transient(self, error: DBAPIError) -> bool:
        """Whether the same work may succeed later: locked, deadlock, lost connection, disk full."""
        ...


def run_batch(connection: Connection, jobs: Sequence[Job], dialect: Dialect, life: Life) -> Ended:
    """Run the jobs in order and commit those that did not fail.

    Raises:
        DBAPIError: the transaction as a whole failed (see `Dialect.is_transient`); nothing is written.
        StoreBusy: nobody can tell whether it was written.
        StoreKilled: see `CommitFaults`.
    """
    dialect.begin(connection)
    try:
        outcomes = _run_members(connection, jobs, dialect)
        done = [outcome for outcome in outcomes if outcome.tx is not None]
        if not done:
            execute(connection, "ROLLBACK")
            return Ended(outcomes=outcomes)
        ended = Ended(
            outcomes=outcomes,
            callbacks=[callback for outcome in done if outcome.tx for callback in outcome.tx.callbacks],
            emitted=[emission for outcome in done if outcome.tx for emission in outcome.tx.emitted],
            rung=[stream_id for outcome in done if outcome.tx for stream_id in outcome.tx.rung],
        )
        dialect.before_commit(connection, ended.streams)
        labels = [outcome.job.label for outcome in done]
        life.before_commit(labels)
        dialect.commit(connection)
    except BaseException:
        roll_back(connection)
        raise
    life.after_commit(labels)
    return ended


def roll_back(connection: Connection) -> None:
    """Undo what is open, if anything is; a lost connection has nothing open."""
    if connection.invalidated:
        return
    try:
        execute(connection, "ROLLBACK")
    except DBAPIError:
        pass


def _run_members(connection: Connection, jobs: Sequence[Job], dialect: Dialect) -> list[Outcome]:
    """Run the jobs; what a failing one did is undone.

    Savepoints cost two statements a job and are hardly ever needed: they come with a second try, once a job of
    several has failed in the first. (Work may run again by contract.)
    """
    outcomes: list[Outcome] = []
    for job in jobs:
        outcome = _run_member(connection, job, dialect)
        if outcome.error is not None and len(jobs) > 1:
            execute(connection, "ROLLBACK")
            dialect.begin(connection)
            return [_run_protected(connection, each, dialect) for each in jobs]
        outcomes.append(outcome)
    return outcomes


def _run_member(connection: Connection, job: Job, dialect: Dialect) -> Outcome:
    tx = SqlTx(connection)
    try:
        return Outcome(job=job, result=job.work(tx), tx=tx)
    except DBAPIError as error:
        if dialect.is_transient(error):
            raise
        return Outcome(job=job, error=error)
    except BaseException as error:  # noqa: BLE001  # a lost lease unwinds as a BaseException; its waiter gets it
        return Outcome(job=job, error=error)


def _run_protected(connection: Connection, job: Job, dialect: Dialect) -> Outcome:
    execute(connection, _SAVEPOINT)
    outcome = _run_member(connection, job, dialect)
    if outcome.error is not None:
        execute(connection, _ROLLBACK_TO)
    execute(connection, _RELEASE)
    return outcome
