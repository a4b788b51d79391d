"""The DBOS engine on PostgreSQL, in a process that ends at a chosen commit: one of ours, or one of DBOS's own."""

import asyncio
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import psycopg
from dbos import DBOS
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Dialect, Engine, event

from signoff.testing.places import Died, Place
from signoff.testing.stores import Changed, MortalStore
from signoff.testing.world import PATIENCE_S, ProcessDied
from tests.simulation.scenario import Scenario
from tests.simulation.stage import Ended, Stage

_ID = re.compile(r"_\d{6}\b")
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM)\b")


@dataclass(frozen=True, slots=True)
class Death:
    """The process ends before, at or after the `nth` place with this label, from 1; see `Course.dies`."""

    when: str
    label: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.when} {self.label} {self.nth}".replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedOnDbos(Ended):
    """A play that has come to its end: also the places it came by, and those at which a process ended.

    `started` are the names of the steps that workers had begun, and not settled, when their process ended.
    """

    places: Sequence[Place]
    died_at: Sequence[Place]
    started: frozenset[str]


class Course:
    """Where a play comes by, over all its processes, and where they die."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self.passed: list[Place] = []
        self.died_at: list[Place] = []
        self._deaths = list(deaths)
        self._counts: Counter[tuple[str, str]] = Counter()

    def dies(self, when: str, labels: Sequence[str]) -> bool:
        """Whether the process ends at this place. Callers hold a lock.

        Labels are counted from the death before, without the ids in them, and each for itself: which transactions
        share a commit is a matter of real time.
        """
        names = [_ID.sub("", label) for label in labels]
        place = Place(len(self.passed), when, tuple(names))
        self.passed.append(place)
        before = self._counts.copy()
        self._counts.update((when, name) for name in names)
        if not self._deaths:
            return False
        next_ = self._deaths[0]
        key = (next_.when, next_.label)
        if not before[key] < next_.nth <= self._counts[key]:
            return False
        self._deaths.pop(0)
        self._counts.clear()
        self.died_at.append(place)
        return True


class Process:
    """One process as the database and the town know it: it comes by places, and once dead it is silent.

    A `CommitFaults` for our own transactions.
    """

    def __init__(self, course: Course, *, died: Callable[[], None], heard: Callable[[], None]) -> None:
        self._course = course
        self._died = died
        self._heard = heard
        self._lock = threading.Lock()
        self._dead = False

    def before_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        self._pass("before", labels)

    def after_commit(self, labels: Sequence[str]) -> None:
        """See `CommitFaults`."""
        self._pass("after", labels)
        self._heard()

    def mark(self, what: str) -> None:
        """A place in a tool or a model."""
        try:
            self._pass("at", [what])
        except Died:
            raise asyncio.CancelledError(f"the process ended {what}") from None

    def end(self) -> None:
        """It dies, wherever it is."""
        self._dead = True

    def breathe(self) -> None:
        """Raises `Died` if the process is dead."""
        if self._dead:
            raise Died

    def _pass(self, when: str, labels: Sequence[str]) -> None:
        with self._lock:
            if self._dead:
                raise Died
            self._dead = self._course.dies(when, labels)
            if not self._dead:
                return
        self._died()
        raise Died


class Connections:
    """All database connections that SQLAlchemy makes, by the process that made them.

    A process is asked around each commit on them; those of our store do not count, since it begins and commits by
    statements of its own and asks by itself.
    """

    def __init__(self) -> None:
        self.process: Process | None = None
        self._processes: dict[Dialect, Process] = {}
        self._open: list[psycopg.Connection] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every connection that is made meanwhile."""
        listeners: dict[str, Callable[..., Any]] = {
            "do_connect": self._connecting,
            "begin": self._begun,
            "before_cursor_execute": self._executing,
            "after_cursor_execute": self._executed,
        }
        for name, listener in listeners.items():
            event.listen(Engine, name, listener)
        try:
            yield
        finally:
            for name, listener in listeners.items():
                event.remove(Engine, name, listener)

    def close(self) -> None:
        """Close those that a dead process has left. Blocks."""
        for connection in self._open:
            connection.close()
        self._open.clear()

    def _connecting(self, dialect: Any, record: object, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        process = self._processes.get(dialect)
        if process is None:
            assert self.process is not None
            process = self._processes[dialect] = self.process
            dialect.do_commit = _asking(process, dialect.do_commit)
        process.breathe()
        connection = dialect.connect(*arguments, **options)
        self._open.append(connection)
        return connection

    def _begun(self, connection: Connection) -> None:
        connection.info.pop("written", None)

    def _executing(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if _WRITES.search(statement) and _commits_itself(cursor):
            self._processes[connection.dialect].before_commit([_label()])

    def _executed(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if not _WRITES.search(statement):
            return
        if _commits_itself(cursor):
            self._processes[connection.dialect].after_commit([_label()])
        elif cursor.rowcount > 0:
            connection.info.setdefault("written", set()).add(_label())


def _asking(process: Process, commit: Callable[[Any], None]) -> Callable[[Any], None]:
    def do_commit(connection: Any) -> None:
        written = list(connection.info.pop("written", ()))
        if written:
            process.before_commit(written)
        process.breathe()
        commit(connection)
        if written:
            process.after_commit(written)

    return do_commit


def _commits_itself(cursor: Any) -> bool:
    """Whether a statement is a transaction of its own."""
    connection = cursor.connection
    return bool(connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE)


def _label() -> str:
    """What of DBOS writes: the function that its other parts call."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_name
        if frame.f_code.co_filename.endswith("/_sys_db.py") and not name.startswith("_") and name != "wrapper":
            return f"dbos:{name}"
        frame = frame.f_back
    return "dbos"


class DbosStage(Stage):
    """The whole application with `engine="dbos"`: DBOS is launched here for each of the play's processes in turn."""

    def __init__(self, scenario: Scenario, url: str, deaths: Sequence[Death]) -> None:
        self.course = Course(deaths)
        self._url = url
        self._connections = Connections()
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._stores: list[MortalStore] = []
        self._started: set[str] = set()
        super().__init__(scenario, mark=self._mark, engine="dbos")

    async def play(self) -> PlayedOnDbos:
        """Play it to the end."""
        self._player = asyncio.current_task()
        with self._connections.watched(), psycopg.connect(self._url, autocommit=True) as self._window:
            try:
                ended = await self._play()
            finally:
                self._end()
                await self._bury()
        return PlayedOnDbos(
            seen=ended.seen,
            tools=ended.tools,
            places=self.course.passed,
            died_at=self.course.died_at,
            started=frozenset(self._started),
        )

    def _mark(self, what: str) -> None:
        process = self._connections.process
        assert process is not None
        process.mark(what)

    def _store(self, changed: Changed) -> MortalStore:
        process = Process(self.course, died=self._died, heard=self._tell)
        self._connections.process = process
        store = MortalStore(self._url, changed=changed, faults=process)
        self._stores.append(store)
        return store

    async def _start(self) -> None:
        if self._stores:
            await self._bury()
        await self.world.start()

    async def _bury(self) -> None:
        """What ran in the dead process runs no more."""
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
        await self._stores[-1].close()
        await asyncio.to_thread(self._connections.close)
        steps = self._window.execute("SELECT name FROM engine_tasks WHERE state = 'started'")
        self._started |= {row[0] for row in steps}

    async def _idle(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    self._heard.clear()
                    if self._stores[-1].died.is_set():
                        raise ProcessDied("while nobody looked")
                    if not self._moving():
                        return
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"{self._moving()} would not end: {self._last_places()}") from None

    def _moving(self) -> list[str]:
        """What DBOS does or will do without more ado: its workflows, and wakes on their way to it."""
        engine: Any = self.world.app.engine
        workflows = self._window.execute(
            "SELECT concat_ws(' ', workflow_uuid, status, queue_name, executor_id) FROM dbos.workflow_status"
            " WHERE status = 'ENQUEUED' OR (status = 'PENDING' AND executor_id = %s)",
            [DBOS.executor_id],
        )
        wakes: set[asyncio.Task[None]] = engine._waker._tasks
        for wake in wakes:
            wake.add_done_callback(lambda _: self._heard.set())
        return [row[0] for row in workflows] + [wake.get_name() for wake in wakes]

    def _last_places(self) -> list[str]:
        return [str(place) for place in self.course.passed[-10:]]

    # from whatever thread ------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._loop.call_soon_threadsafe(self._heard.set)

    def _died(self) -> None:
        self._loop.call_soon_threadsafe(self._die)

    def _die(self) -> None:
        self._end()
        self._heard.set()

    def _end(self) -> None:
        """The process ends here. None of its tasks runs any further, and nothing of it reaches the database."""
        assert self._connections.process is not None
        self._connections.process.end()
        self._stores[-1].kill()
        for task in asyncio.all_tasks():
            if task is not self._player:
                task.cancel()


def play_on_dbos(scenario: Scenario, url: str, *deaths: Death) -> PlayedOnDbos:
    """Play `scenario` on a fresh database with all tables."""

    async def work() -> PlayedOnDbos:
        return await DbosStage(scenario, url, deaths).play()

    return asyncio.run(work())
