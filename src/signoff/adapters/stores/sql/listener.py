"""Hears from PostgreSQL which streams other processes have written to."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from signoff.adapters.stores.sql.types import unescape

if TYPE_CHECKING:
    import psycopg

CHANNEL = "signoff_frames"

_PAUSE_S = 0.5
_LISTEN_S = 5.0


class Listener:
    """One connection that listens, in a thread. A lost connection is made again, and then everybody is woken."""

    def __init__(self, engine: Engine, wake: Callable[[Iterable[str] | None], None]) -> None:
        self._engine = engine
        self._wake = wake
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen; does nothing the second time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="signoff-postgres-listener", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop listening. Blocks."""
        self._closing.set()
        if self._thread is None:
            return
        # Waiting for a notification can only be ended by one.
        with contextlib.suppress(DBAPIError), self._engine.connect() as connection:
            connection.exec_driver_sql("SELECT pg_notify(%(channel)s, '')", {"channel": CHANNEL})
        self._thread.join()

    def _run(self) -> None:
        import psycopg

        while not self._closing.is_set():
            try:
                self._listen()
            except (DBAPIError, psycopg.Error):
                self._closing.wait(_PAUSE_S)

    def _listen(self) -> None:
        with self._engine.connect() as connection:
            driver = cast("psycopg.Connection", connection.connection.driver_connection)
            # Not back into the pool: it would go on to collect notifications there.
            connection.detach()
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            # What was said before this was not heard.
            self._wake(None)
            while not self._closing.is_set():
                for notification in driver.notifies(timeout=_LISTEN_S):
                    if self._closing.is_set():
                        return
                    self._wake([unescape(notification.payload)])
