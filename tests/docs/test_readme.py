"""What the README promises, done as it says."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.demo_process import RUNNERS, DemoProcess
from tests.docs import provider
from tests.unit.models.http_server import JsonBody, running_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_its_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


async def test_the_application_refunds_only_after_approval(tmp_path: Path) -> None:
    """The whole file as it stands, against a provider on a local socket."""
    [source] = blocks("python")
    (tmp_path / "desk.py").write_text(source)
    async with running_server() as model:
        model.handlers = [
            provider.calls("refund", {"order_id": "A-1001", "cents": 4200}),
            provider.says("Refunded."),
        ]
        with served("desk:api", tmp_path, OPENAI_BASE_URL=f"{model.url}/v1", OPENAI_API_KEY="none") as url:
            async with (
                httpx.AsyncClient(base_url=url, timeout=30) as http,
                http.stream("POST", "/agent/chat", json={"message": "refund A-1001"}) as response,
            ):
                frames = events(response)
                async for card in frames:
                    assert card["kind"] != "tool-output"
                    if card["kind"] == "approval-requested":
                        break
                assert card["input"] == {"order_id": "A-1001", "cents": 4200}
                decision = await http.post("/agent/tool-call/approve", json={"toolCallId": card["id"]})
                assert decision.json() == {"ok": True}
                rest = [frame async for frame in frames]

    [output] = [frame["output"] for frame in rest if frame["kind"] == "tool-output"]
    assert output["cents"] == 4200
    assert output["refund"].startswith("re_")
    assert "".join(frame["text"] for frame in rest if frame["kind"] == "text") == "Refunded."
    [told] = [item for item in model.requests[1].body["input"] if item.get("type") == "function_call_output"]
    assert json.loads(told["output"]) == output


@pytest.mark.parametrize("runner", RUNNERS)
def test_approval_with_curl(tmp_path: Path, runner: str) -> None:
    """The three commands in a row; `$CALL` is the id that the inbox shows."""
    send, inbox, approve = blocks("bash")
    with DemoProcess(tmp_path, runner=runner) as demo:
        script = [
            "set -euo pipefail",
            send,
            # `tail` follows the stream's file, so this returns once the card is there.
            "SEND=$!",
            "grep -q -m1 approval-requested <(tail -n +1 --pid=$SEND -F stream.txt 2>/dev/null)",
            f"{inbox.strip()} > inbox.json",
            f'CALL=$({sys.executable} -c \'import json; print(json.load(open("inbox.json"))[0]["toolCallId"])\')',
            approve,
            "wait $SEND",
        ]
        text = "\n".join(script).replace("http://127.0.0.1:8000", demo.url)
        done = subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr + demo.log
    assert json.loads(done.stdout) == {"ok": True}
    stream = (tmp_path / "stream.txt").read_text()
    kinds = re.findall(r'"kind":"([a-z-]+)"', stream)
    assert [kind for kind in kinds if kind.startswith(("approval", "tool-output"))] == [
        "approval-requested",
        "approval-settled",
        "tool-output",
    ]
    assert stream.endswith("event: done\ndata: {}\n\n")


@contextmanager
def served(application: str, folder: Path, **env: str) -> Iterator[str]:
    """An ASGI application under uvicorn, in a process of its own. The socket listens before the process starts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            application,
            "--fd",
            str(listener.fileno()),
            "--log-level",
            "warning",
        ]
        process = subprocess.Popen(
            command, cwd=folder, pass_fds=[listener.fileno()], env={**os.environ, **env, "PYTHONPATH": str(folder)}
        )
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.wait(timeout=15)


async def events(response: httpx.Response) -> AsyncIterator[JsonBody]:
    """The stream's numbered events."""
    numbered = False
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            numbered = True
        elif line.startswith("data: ") and numbered:
            yield json.loads(line.removeprefix("data: "))
            numbered = False
