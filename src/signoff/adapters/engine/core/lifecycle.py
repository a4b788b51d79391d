"""What happens to runs inside a transaction: started, signalled, cancelled, ended; and who is told after it commits."""

import logging
from collections.abc import Callable, Container, Iterable

from signoff.adapters.engine.core import runs, signals, wakeups
from signoff.adapters.engine.core.codec import failure_of, message_of
from signoff.adapters.engine.core.connection import connection_of
from signoff.adapters.engine.core.journal import Hold
from signoff.adapters.engine.core.runs import Ending, Standing
from signoff.adapters.engine.core.wakeups import Woken
from signoff.domain.jsonvalue import Json, JsonObject, encode, normalise, normalised_text
from signoff.errors import InvalidInput, UnknownWorkflow
from signoff.ports.clock import Clock
from signoff.ports.engine import EngineStatus, RunObserver, SignalOutcome
from signoff.ports.store import Tx

logger = logging.getLogger(__name__)


class Lifecycle:
    """The engine's rules for a run's row, usable in anybody's transaction.

    `observer` is set while the engine is open. Without one a run's end is left to a process that has one, since
    what people read must end in the same transaction.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        namespace: str,
        workflows: Container[str],
        bytes_max: int,
        announce: Callable[[Woken], None],
        announce_cancel: Callable[[str], None],
    ) -> None:
        self.observer: RunObserver | None = None
        self._clock = clock
        self._namespace = namespace
        self._workflows = workflows
        self._bytes_max = bytes_max
        self._announce = announce
        self._announce_cancel = announce_cancel

    def start(
        self,
        tx: Tx,
        *,
        run_id: str,
        workflow: str,
        input_: JsonObject,
        parent_id: str | None,
        linked: bool,
        namespace: str,
    ) -> bool:
        """See `ports.engine.Engine.start`. `linked`: the parent's cancellation reaches it, its end wakes the parent."""
        if workflow not in self._workflows:
            raise UnknownWorkflow(f"no workflow {workflow!r} is registered here")
        if self._namespace and namespace not in ("", self._namespace):
            raise InvalidInput(f"this engine serves the namespace {self._namespace!r} only", field="namespace")
        stored = normalise(input_, what=f"input of run {run_id!r}", bytes_max=self._bytes_max)
        started = runs.insert_run(
            connection_of(tx),
            run_id=run_id,
            workflow=workflow,
            input_=stored if isinstance(stored, dict) else {},
            parent_id=parent_id,
            linked=linked and parent_id is not None,
            namespace=namespace or self._namespace,
            now=self._clock.now(),
        )
        if started:
            self.begin(tx, Woken(run_id, workflow))
        return started

    def signal(self, tx: Tx, run_id: str, name: str, payload: Json, *, dedup_key: str) -> SignalOutcome:
        """See `ports.engine.Engine.signal`."""
        connection = connection_of(tx)
        run = runs.standing(connection, run_id)
        if run is None or not self.sees(run):
            return SignalOutcome.UNKNOWN
        if run.status.is_terminal or run.status is EngineStatus.CANCELLING:
            return SignalOutcome.TERMINAL
        text = normalised_text(payload, what=f"signal {name!r}", bytes_max=self._bytes_max)
        now = self._clock.now()
        if not signals.leave(connection, run_id=run_id, name=name, payload=text, dedup_key=dedup_key, at=now):
            return SignalOutcome.DUPLICATE
        self.wake(tx, run_id, name)
        return SignalOutcome.ACCEPTED

    def cancel(self, tx: Tx, run_id: str, *, compensate: bool = False) -> bool:
        """See `ports.engine.Engine.cancel`."""
        connection = connection_of(tx)
        run = runs.standing(connection, run_id)
        if run is None or not self.sees(run) or run.status.is_terminal:
            return False
        self._cancel(tx, run, compensate=compensate, seen={run_id})
        return True

    def end(
        self,
        tx: Tx,
        run: Standing,
        ending: Ending,
        *,
        error: BaseException | None = None,
        tip: int = 0,
        observed: bool = True,
    ) -> bool:
        """Give the run its terminal status, settle what people read, tell the parent. False: somebody was faster.

        `observed` is false where the observer itself has failed.
        """
        connection = connection_of(tx)
        hold = Hold(run_id=run.id, fence=run.fence, tip=tip)
        if not runs.end(connection, hold, ending, from_status=run.status, now=self._clock.now()):
            return False
        if ending.status is not EngineStatus.COMPLETED and self.observer is not None and observed:
            self.observer.ended(tx, run.id, ending.status, error, ending.error or "")
        if run.linked and run.parent_id is not None:
            self.deliver(tx, run.parent_id, run, ending)
        return True

    def deliver(self, tx: Tx, parent_id: str, child: Standing, ending: Ending) -> None:
        """Leave the child's end for its parent.

        A parent that failed gets it as well: an operator may drive it again. The key has the child's fence in it,
        so that a child that is driven again after a failure can report again.
        """
        connection = connection_of(tx)
        parent = runs.standing(connection, parent_id)
        if parent is not None and parent.is_undone:
            # It was waiting for its children to be undone before it.
            self.announce(tx, [Woken(parent.id, parent.workflow)])
        if parent is None or parent.status in _DEAF:
            return
        name = child_signal(child.id)
        signals.leave(
            connection,
            run_id=parent_id,
            name=name,
            payload=encode(child_outcome(ending)),
            dedup_key=f"{name}:{child.fence}:{ending.status}",
            at=self._clock.now(),
        )
        self.wake(tx, parent_id, name)

    def begin(self, tx: Tx, run: Woken) -> None:
        """Drive a new run once the transaction has committed."""
        self.announce(tx, [run])

    def announce(self, tx: Tx, woken: Iterable[Woken]) -> None:
        """Drive these runs once the transaction has committed."""
        for run in woken:
            tx.on_commit(lambda run=run: self._announce(run))  # type: ignore[misc]

    def parked(self, tx: Tx, run_id: str) -> None:
        """The run has left memory to wait."""
        if self.observer is not None:
            self.observer.parked(tx, run_id, True)

    def go_on(self, tx: Tx, woken: Iterable[Woken]) -> None:
        """As `announce`, for runs that were parked."""
        found = list(woken)
        if self.observer is not None:
            for run in found:
                self.observer.parked(tx, run.id, False)
        self.announce(tx, found)

    def is_executed(self, tx: Tx, run: Standing) -> bool:  # noqa: ARG002
        """Whether something of the run is executed now, so that a cancel has to wait for it."""
        return run.status in (EngineStatus.RUNNING, EngineStatus.CANCELLING)

    def sees(self, run: Standing) -> bool:
        """Whether the run is in this engine's namespace."""
        return self._namespace in ("", run.namespace)

    def wake(self, tx: Tx, run_id: str, signal: str) -> None:
        """Let a parked run go on, if it waits for `signal`."""
        woken = wakeups.wake(connection_of(tx), run_id, signal, now=self._clock.now())
        if woken is not None:
            self.go_on(tx, [woken])

    def _cancel(self, tx: Tx, run: Standing, *, compensate: bool, seen: set[str]) -> None:
        connection = connection_of(tx)
        if compensate:
            self._cancel_and_undo(tx, run)
        elif self.observer is not None and not self.is_executed(tx, run):
            self.end(tx, run, CANCELLED)
        elif run.status is not EngineStatus.CANCELLING:
            runs.mark_cancelling(connection, run, compensate=False, now=self._clock.now())
            tx.on_commit(lambda: self._announce_cancel(run.id))
        for child_id in runs.linked_children(connection, run.id):
            child = runs.standing(connection, child_id)
            if child is None or child.status.is_terminal or child_id in seen:
                continue
            seen.add(child_id)
            self._cancel(tx, child, compensate=compensate, seen=seen)

    def _cancel_and_undo(self, tx: Tx, run: Standing) -> None:
        """Nobody ends it before it is undone. Whoever executes it is told; otherwise it is driven for that."""
        if run.is_undone:
            return
        runs.mark_cancelling(connection_of(tx), run, compensate=True, now=self._clock.now())
        woken = Woken(run.id, run.workflow)
        if run.status is EngineStatus.SUSPENDED:
            self.go_on(tx, [woken])
        elif run.lease_until is None:
            self.announce(tx, [woken])
        else:
            tx.on_commit(lambda: self._announce_cancel(run.id))


#: Parents that will never look at a child's end.
_DEAF = (EngineStatus.COMPLETED, EngineStatus.CANCELLED, EngineStatus.CANCELLING)

CANCELLED = Ending(status=EngineStatus.CANCELLED, error="the run was cancelled")


def failed(error: BaseException, *, code: str | None = None) -> Ending:
    """The ending of a run whose body, journal or code broke."""
    failure = failure_of(error)
    own_code = failure.get("code")
    return Ending(
        status=EngineStatus.FAILED,
        error_type=str(failure["type"]),
        error=message_of(error),
        error_code=code if code is not None else own_code if isinstance(own_code, str) else None,
    )


def dead(crashes: int) -> Ending:
    """The ending of a run that killed every worker."""
    return Ending(
        status=EngineStatus.DEAD,
        error_type="Dead",
        error=f"the run was given up after its worker died {crashes} times in a row",
        error_code="run_dead",
    )


def child_signal(run_id: str) -> str:
    """The name under which a child's end comes."""
    return f"child:{run_id}"


def child_outcome(ending: Ending) -> JsonObject:
    """A child's end as its parent's journal keeps it."""
    match ending.status:
        case EngineStatus.COMPLETED:
            return {"status": ending.status.value, "output": ending.output}
        case EngineStatus.CANCELLED:
            return {"status": ending.status.value}
        case _:
            error: JsonObject = {"type": ending.error_type or "Exception", "message": ending.error or ""}
            if ending.error_code is not None:
                error["code"] = ending.error_code
            return {"status": ending.status.value, "error": error}
