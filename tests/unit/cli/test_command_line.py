"""The command as a user calls it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest


def signoff(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signoff", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_help_names_the_verbs(tmp_path: Path) -> None:
    done = signoff("--help", folder=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = signoff("demo", "--port", str(port), folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"signoff: cannot listen on 127.0.0.1:{port}: Address already in use; try --port\n"


@pytest.mark.parametrize(
    "option",
    [("--database", "mysql://localhost/demo"), ("--database", "nonsense"), ("--model", "nobody:nothing")],
)
def test_what_cannot_start_is_one_line(tmp_path: Path, option: tuple[str, str]) -> None:
    done = signoff("demo", "--port", "0", *option, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("signoff: ")
    assert done.stderr.count("\n") == 1
