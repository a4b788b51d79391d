"""The check of published chat clients: where it lies, how it is installed, how it is run.

It is no part of this repository. `SIGNOFF_CHECKS` names the folder that holds it; by default that is
`../shared/checks` beside the checkout.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[3] / "shared" / "checks"
CHECK = Path(os.environ.get("SIGNOFF_CHECKS", _BESIDE)) / "react-client"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "signoff-tests"
RUN_S = 300


def installed() -> Path:
    """A folder with the check and its packages, installed once per version of the check; skips where it can't be."""
    if not CHECK.is_dir():
        pytest.skip(f"there is no client check at {CHECK}; SIGNOFF_CHECKS names another place")
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = CACHE / f"react-client-{_digest(CHECK)}"
    if not folder.is_dir():
        _install(folder)
    return folder


def run(folder: Path, *command: str, env: dict[str, str] | None = None) -> int:
    """Run one of the check's programs; its rows go to the test's output. Returns the exit code."""
    done = subprocess.run(
        ["node", *command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    print(done.stdout)
    return done.returncode


def _digest(source: Path) -> str:
    content = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        content.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return content.hexdigest()[:16]


def _install(folder: Path) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    # Renamed into place when whole, so that a broken or a second installation is never taken for this one.
    with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
        work = Path(temporary) / "check"
        shutil.copytree(CHECK, work, copy_function=shutil.copyfile)
        for path in (work, *work.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--loglevel=error"]
        subprocess.run(npm, cwd=work, check=True, timeout=RUN_S)
        if not folder.exists():
            work.rename(folder)
