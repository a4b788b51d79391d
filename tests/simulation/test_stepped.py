"""What the simulation stands on."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from signoff.domain.frame import text
from signoff.errors import StoreBusy
from signoff.ports.store import Tx
from signoff.testing.clock import FakeClock
from signoff.testing.places import Places
from signoff.testing.stepped import SteppedStore, idle, stepped
from tests.simulation.play import empty_database


class Locked:
    """A database that is locked for the next `times` transactions."""

    times = 0

    def begin(self) -> None:
        """See `testing.stepped.Refusals`."""
        if self.times:
            self.times -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise OperationalError("BEGIN", None, error)

    def commit(self) -> None:
        """See `testing.stepped.Refusals`."""


@pytest.mark.parametrize("locked", [0, 1, 2, 3])
def test_what_nobody_waits_for_comes_before_what_is_submitted_later(tmp_path: Path, locked: int) -> None:
    """Also where the database refuses it at first: whoever submitted it goes on, so it must not be missing later."""

    file = tmp_path / "desk.db"
    file.write_bytes(empty_database())

    async def write() -> list[object]:
        refusals = Locked()
        store = _store(file, refusals)
        await store.open()
        refusals.times = locked
        store.transact_soon("soon", lambda tx: _say(tx, "first"))
        await idle()
        try:
            await store.transact("later", lambda tx: _say(tx, "second"))
        except StoreBusy:
            pass
        said = await store.read(lambda tx: [each.frame["text"] for each in tx.frames("run", after=0, limit=9)])
        await store.close()
        return list(said)

    with stepped() as run:
        assert run(write()) == (["first", "second"] if locked < 3 else [])


def test_a_loop_is_idle_when_only_time_could_help() -> None:
    """Whatever can go on has gone on by then, and no real time passes."""

    async def wait() -> list[str]:
        clock, seen = FakeClock(), []
        clock.call_at(clock.now(), lambda: seen.append("due"))
        clock.call_at(clock.now().replace(year=2100), lambda: seen.append("never"))
        await idle()
        return seen

    with stepped() as run:
        assert run(wait()) == ["due"]


def _store(file: Path, refusals: Locked) -> SteppedStore:
    places = Places(frozenset(), lambda: None)
    return SteppedStore(f"sqlite:///{file}", changed=lambda: None, faults=places, eager=True, refusals=refusals)


def _say(tx: Tx, what: str) -> None:
    tx.emit("run", [text(what)])
