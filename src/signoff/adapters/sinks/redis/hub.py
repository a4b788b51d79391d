"""What other processes publish, read by one connection for all readers of this one."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from redis.asyncio import Redis

from signoff.adapters.sinks.redis.entries import Entry, entry_id, read_entry
from signoff.adapters.sinks.redis.outage import TROUBLE, Outage

#: How long one XREAD waits; a stream that somebody begins to follow meanwhile is part of the next one.
_BLOCK_MS = 200
_COUNT = 100
#: Each XREAD names every stream; with many of them there is a pause, so that it is worth it.
_PAUSE_PER_STREAM_S = 20e-6


#: By stream: its key, and its entries as id and fields.
_Answer: TypeAlias = Sequence[tuple[bytes, Sequence[tuple[bytes, Mapping[bytes, bytes]]]]]


class Reader(Protocol):
    """Takes entries of one stream. Must not block or raise."""

    @property
    def stream_id(self) -> str: ...

    def put(self, entry: Entry) -> None: ...


class RedisHub:
    """Reads the streams that somebody here follows, each from where its slowest beginner stands."""

    def __init__(self, redis: "Redis", outage: Outage, *, prefix: str) -> None:
        self._redis = redis
        self._outage = outage
        self._prefix = prefix
        self._readers: dict[str, set[Reader]] = {}
        self._positions: dict[str, int] = {}
        self._carried: set[str] = set()
        self._is_up = False
        self._wanted = asyncio.Event()

    def join(self, reader: Reader) -> None:
        """Hand everything that is read of the reader's stream to it."""
        self._readers.setdefault(reader.stream_id, set()).add(reader)

    def leave(self, reader: Reader) -> None:
        """The reader has gone. Idempotent."""
        readers = self._readers.get(reader.stream_id, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(reader.stream_id, None)
            self._positions.pop(reader.stream_id, None)
            self._carried.discard(reader.stream_id)

    def read_from(self, stream_id: str, position: int) -> None:
        """A reader that has joined needs what is behind `position`. Others may get some of it twice."""
        if position < self._positions.get(stream_id, position + 1):
            self._positions[stream_id] = position
            self._carried.discard(stream_id)
            self._wanted.set()

    def carries(self, stream_id: str) -> bool:
        """Whether what is published on this stream now comes here by itself."""
        return stream_id in self._carried

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            if not self._positions:
                self._wanted.clear()
                await self._wanted.wait()
            asked = dict(self._positions)
            if self._is_up:
                self._carried |= asked.keys()
            try:
                found = await self._read(asked)
            except TROUBLE as error:
                self._lose()
                await asyncio.sleep(self._outage.begin(error))
                continue
            self._outage.end()
            self._is_up = True
            self._hand_out(asked, found)
            await asyncio.sleep(len(asked) * _PAUSE_PER_STREAM_S)

    async def _read(self, asked: Mapping[str, int]) -> dict[str, list[Entry]]:
        streams = {self._prefix + stream_id: entry_id(seq) for stream_id, seq in asked.items()}
        answer = await self._redis.xread(streams, count=_COUNT, block=_BLOCK_MS)  # type: ignore[arg-type]
        found = {}
        for key, entries in cast("_Answer", answer):
            stream_id = key.decode().removeprefix(self._prefix)
            found[stream_id] = [read_entry(id_, fields) for id_, fields in entries]
        return found

    def _hand_out(self, asked: Mapping[str, int], found: Mapping[str, Sequence[Entry]]) -> None:
        for stream_id, entries in found.items():
            for reader in tuple(self._readers.get(stream_id, ())):
                for entry in entries:
                    reader.put(entry)
            # Unless somebody joined meanwhile who needs to begin before that.
            if entries and self._positions.get(stream_id) == asked[stream_id]:
                self._positions[stream_id] = entries[-1].last_seq

    def _lose(self) -> None:
        self._is_up = False
        self._carried.clear()
