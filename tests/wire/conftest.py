"""A desk behind a real server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
import pytest
import uvicorn

from tests.wire.desk import ANA, Desk, Reader, a_desk


class Served:
    """A client of a desk on a real port. Streams are read while they are written."""

    def __init__(self, desk: Desk, http: httpx.AsyncClient) -> None:
        self.desk = desk
        self.http = http

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: object = None, headers: dict[str, str] | None = None
    ) -> AsyncIterator[Reader]:
        """An open event stream."""
        async with self.http.stream(method, path, json=body, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            yield Reader(response)

    @asynccontextmanager
    async def said(self, message: str, **body: object) -> AsyncIterator[Reader]:
        """The stream that answers a message."""
        async with self.stream("POST", "/chat", body={"message": message, **body}) as reader:
            yield reader


class _Server(uvicorn.Server):
    def __init__(self, desk: Desk) -> None:
        # Readers that a test left open must not hold up its end.
        super().__init__(uvicorn.Config(desk.api, port=0, log_level="warning", timeout_graceful_shutdown=1))
        self.up = asyncio.Event()

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup()
        self.up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ctrl-C belongs to pytest."""
        yield

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}/agent"


@asynccontextmanager
async def serve(desk: Desk) -> AsyncIterator[Served]:
    """`desk` on a free port, with a client that acts as ana."""
    server = _Server(desk)
    serving = asyncio.create_task(server.serve())
    up = asyncio.create_task(server.up.wait())
    await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
    assert server.started, "the server did not start"
    try:
        async with httpx.AsyncClient(base_url=server.url, headers=ANA, timeout=10) as http:
            yield Served(desk, http)
    finally:
        server.should_exit = True
        await serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A desk that believes headers."""
    async with serve(a_desk()) as served:
        yield served
