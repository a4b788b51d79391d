"""The bank's server, started, killed and started again."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 30.0
ROOT = Path(__file__).parents[2]


class BankProcess:
    """One server on a database of its own; the port stays over restarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._log = folder / "bank.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def effects(self) -> list[str]:
        """What happened in the outside world, in order."""
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def count(self, what: str) -> int:
        """How often an effect happened."""
        return sum(line.split()[0] == what for line in self.effects)

    def arm(self, mark: str) -> None:
        """Let the process kill itself there, once."""
        (self.folder / mark).touch()

    def start(self) -> None:
        """Start and wait for the line that names the address."""
        port = self.url.rpartition(":")[2] or "0"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.bank_app", str(self.folder), port],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        assert line.startswith("ready: "), f"the bank did not start: {line!r}\n{self._log.read_text()}"
        self.url = line.removeprefix("ready: ").strip()

    def kill(self) -> None:
        """SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def wait_for_death(self) -> None:
        """The process kills itself: wait for that."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        assert process.wait(timeout=START_S) == -signal.SIGKILL, self._log.read_text()
        process.stdout.close()
