"""The published React client, the AI SDK's own chat state and the AG-UI client, against a running demo."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.clients import react_client
from tests.demo_process import RUNNERS, DemoProcess

#: One npm install and one check, and the demo's starts.
pytestmark = [pytest.mark.node, pytest.mark.timeout(3 * react_client.RUN_S)]


@pytest.fixture(scope="module")
def check() -> Path:
    return react_client.installed()


def test_the_check_tells_right_from_wrong(check: Path) -> None:
    assert react_client.run(check, "selftest.mjs") == 0


@pytest.mark.parametrize("runner", RUNNERS)
def test_published_clients_are_served(check: Path, tmp_path: Path, runner: str) -> None:
    """Every row of the check, the optional ones too; durably also over a killed server."""
    with DemoProcess(tmp_path, runner=runner) as demo, _restarts(demo) as restart:
        env = {"RESTART_CMD": restart} if runner == "durable" else {}
        code = react_client.run(check, "check.mjs", demo.url, "--strict", env=env)
        assert code == 0, demo.log


@contextmanager
def _restarts(demo: DemoProcess) -> Iterator[str]:
    """A shell command that kills the demo and returns when it is back. The process stays this test's child."""

    class Restart(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            demo.restart()
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Restart) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"node -e \"fetch('http://127.0.0.1:{server.server_port}',{{method:'POST'}})\""
        finally:
            server.shutdown()
            thread.join()
