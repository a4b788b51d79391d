"""The network between a browser and the demo, so that a test can cut it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Line:
    """Passes bytes on to `target`. `url` is where the browser goes."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._host = address.hostname or ""
        self._port = address.port or 80
        self._open: set[asyncio.StreamWriter] = set()
        self._broken = False
        self.url = ""

    def cut(self) -> None:
        """Break every connection, and each new one until `mend`."""
        self._broken = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        """Let new connections through."""
        self._broken = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._broken:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        ends = {writer, far_writer}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, far_writer))
                both.create_task(_pass_on(far_reader, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.close()


@asynccontextmanager
async def line_to(target: str) -> AsyncIterator[Line]:
    """A line on a free port."""
    line = Line(target)
    listener = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        listener.close()
        line.cut()
        await listener.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # cut
    finally:
        writer.close()
