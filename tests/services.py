"""PostgreSQL and Redis for tests: the ones named in the environment, running here, or started for this session.

Without any the test is skipped and says why; on CI a skip fails (see `conftest`).
"""

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

_START_S = 30.0


def postgres_url() -> str:
    """URL of a PostgreSQL database in which schemas may be created; skips the test if there is none."""
    return _postgres() or pytest.skip("no PostgreSQL: set SIGNOFF_TEST_POSTGRES, start one, or install its server")


def redis_url() -> str:
    """URL of a Redis server; skips the test if there is none."""
    return _redis() or pytest.skip("no Redis: set SIGNOFF_TEST_REDIS, start one, or install redis-server")


@contextlib.contextmanager
def postgres_schema(name: str) -> Iterator[str]:
    """URL of an empty schema of this process's own; dropped at the end."""
    url = postgres_url()
    schema = f"{name}_{os.getpid()}"
    _execute(url, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', f'CREATE SCHEMA "{schema}"')
    separator = "&" if "?" in url else "?"
    try:
        yield f"{url}{separator}options={quote(f'-csearch_path={schema}')}"
    finally:
        _execute(url, f'DROP SCHEMA "{schema}" CASCADE')


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        for statement in statements:
            connection.execute(statement.encode())


@cache
def _postgres() -> str | None:
    if url := os.environ.get("SIGNOFF_TEST_POSTGRES"):
        return url
    running = "postgresql://postgres@127.0.0.1:5432/postgres"
    return running if _postgres_answers(running) else _start_postgres()


@cache
def _redis() -> str | None:
    if url := os.environ.get("SIGNOFF_TEST_REDIS"):
        return url
    return "redis://127.0.0.1:6379" if _redis_answers(6379) else _start_redis()


def _postgres_answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(7) == b"+PONG\r\n"
    except OSError:
        return False


def _start_postgres() -> str | None:
    server = _new_postgres()
    return None if server is None else _for_this_session(server)


def _start_redis() -> str | None:
    server = _new_redis()
    return None if server is None else _for_this_session(server)


def _for_this_session(server: "Server") -> str:
    atexit.register(server.remove)
    server.start()
    return server.url


@contextlib.contextmanager
def own_postgres() -> Iterator["Server"]:
    """A PostgreSQL server that a test may stop; skips the test if none is installed."""
    yield from _own(_new_postgres() or pytest.skip("no PostgreSQL server to start: install one"))


@contextlib.contextmanager
def own_redis() -> Iterator["Server"]:
    """A Redis server that a test may stop; skips the test if none is installed."""
    yield from _own(_new_redis() or pytest.skip("no Redis server to start: install redis-server"))


def _own(server: "Server") -> Iterator["Server"]:
    try:
        server.start()
        yield server
    finally:
        server.remove()


class Server:
    """A server process in a directory of its own. Address and data stay when it is started again."""

    def __init__(
        self, url: str, command: Sequence[str], *, home: Path, user: str | None, answers: Callable[[], bool]
    ) -> None:
        self.url = url
        self._command = command
        self._home = home
        self._user = user
        self._answers = answers
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers. Blocks."""
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, user=self._user, cwd=self._home, stdout=log, stderr=log)
        give_up_at = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"{self._command[0]} did not start: {(self._home / 'log').read_text()}")
            time.sleep(0.05)  # another program's start can only be polled

    def send(self, number: int) -> None:
        """Send a signal, as `SIGSTOP`."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it by this signal. Blocks."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """End it, and delete its data. Blocks."""
        self.stop(signal.SIGINT)
        shutil.rmtree(self._home, ignore_errors=True)


def _new_postgres() -> Server | None:
    installed = [str(directory) for directory in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    search = os.pathsep.join([*installed, os.environ.get("PATH", "")])
    initdb, server = shutil.which("initdb", path=search), shutil.which("postgres", path=search)
    if initdb is None or server is None:
        return None
    # PostgreSQL refuses to run as root.
    user = "postgres" if os.geteuid() == 0 and _exists("postgres") else None
    home = Path(tempfile.mkdtemp(prefix="signoff-postgres-"))
    if user is not None:
        shutil.chown(home, user)
    port = _free_port()
    data = str(home / "data")
    subprocess.run(
        [initdb, "--pgdata", data, "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"],
        check=True,
        capture_output=True,
        user=user,
        cwd=home,
    )
    arguments = ["-D", data, "-k", str(home), "-p", str(port), "-h", "127.0.0.1"]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    return Server(url, [server, *arguments], home=home, user=user, answers=lambda: _postgres_answers(url))


def _new_redis() -> Server | None:
    server = shutil.which("redis-server")
    if server is None:
        return None
    home, port = Path(tempfile.mkdtemp(prefix="signoff-redis-")), _free_port()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home), "--save", ""]
    url = f"redis://127.0.0.1:{port}"
    return Server(url, [server, *arguments], home=home, user=None, answers=lambda: _redis_answers(port))


def _exists(user: str) -> bool:
    return any(entry.pw_name == user for entry in pwd.getpwall())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
