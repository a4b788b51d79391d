"""`signoff demo` as a process of its own, as a user runs it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

RUNNERS = ("inline", "durable")
START_S = 30.0
STOP_S = 15.0


class DemoProcess:
    """One demo on a free port and a database of its own; the port stays over restarts.

    A context manager: leaving it ends the process. `url` has no slash at its end; `durable`: its turns outlive it.
    """

    def __init__(self, folder: Path, *, runner: str) -> None:
        self.url = ""
        self.durable = runner == "durable"
        self._runner = runner
        self._database = f"sqlite:///{folder / 'demo.db'}"
        self._log = folder / "demo.log"
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What the process wrote on stderr, over all its starts."""
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        """Start and wait for the line that names the address: from then on it answers."""
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "signoff", "demo", "--port", port, "--database", self._database]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--runner", self._runner],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._log.parent,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        watchdog = threading.Timer(START_S, self._process.kill)
        watchdog.start()
        line = self._process.stdout.readline()
        watchdog.cancel()
        if not line.startswith("signoff demo: http://"):
            self.stop()
            raise AssertionError(f"the demo did not start: {line!r}\n{self.log}")
        self.url = line.removeprefix("signoff demo: ").strip()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int | None:
        """Send the signal, wait for the end; returns the exit code."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(number)
        try:
            return process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the demo ignored {number.name}\n{self.log}") from None
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.stop(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again, on the same port and database."""
        self.kill()
        self.start()
