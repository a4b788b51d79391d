"""A provider on a local socket, so small that a test decides about every byte and sees every disconnect."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JsonBody: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    path: str
    headers: dict[str, str]
    body: JsonBody


class Response:
    """What the test sends back on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streaming = False
        self.client_port: int = writer.get_extra_info("peername")[1]

    async def json(self, status: int, body: JsonBody, headers: dict[str, str] | None = None) -> None:
        """A whole response."""
        text = json.dumps(body).encode()
        await self._head(
            status, {"content-type": "application/json", "content-length": str(len(text)), **(headers or {})}
        )
        await self._send(text)

    async def events(self, events: Iterable[JsonBody | str]) -> None:
        """More server-sent events; a dictionary with a `type` names its event, as providers do. Text goes as it is."""
        if not self._streaming:
            self._streaming = True
            await self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event)
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            await self._chunk(f"{name}data: {data}\n\n".encode())

    async def end(self) -> None:
        """End the stream as a healthy server does."""
        await self._send(b"0\r\n\r\n")

    def drop(self) -> None:
        """Break the connection, as a server does that dies."""
        self._writer.transport.abort()

    async def client_gone(self) -> None:
        """Return once the client has closed the connection."""
        try:
            while await self._reader.read(1024):
                pass
        except ConnectionError:
            pass

    async def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        await self._send("\r\n".join(lines).encode())

    async def _chunk(self, data: bytes) -> None:
        await self._send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


Handler: TypeAlias = Callable[[Request, Response], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Server:
    """Answers the requests with `handlers` in turn; the last one answers all further requests."""

    url: str = ""
    handlers: list[Handler] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                handler = self.handlers[min(len(self.requests), len(self.handlers) - 1)]
                self.requests.append(request)
                await handler(request, Response(reader, writer))
                if writer.transport.is_closing():
                    return
        except ConnectionError:
            pass  # the client left while we wrote: its right
        finally:
            writer.close()


@asynccontextmanager
async def running_server() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listener.close()
        await listener.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *rest = head.strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(path=first.split()[1], headers=headers, body=json.loads(body))
