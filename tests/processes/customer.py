"""A customer and the person who decides: over HTTP, at any replica, with connections that break."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random  # noqa: TID251  # chaos wants seeds, not our ids

import httpx

from tests.processes.chaos_app import Ledger
from tests.wire.desk import Block, Reader

HEADERS = {"x-actor-id": "ana", "x-actor-role": "USER"}
PAUSE_S = 0.2
#: A fault that a client may meet while servers die, and tries again.
FAULTS = (500, 502, 503)


class Customer:
    """One turn: asks, reads the stream in pieces wherever it likes, and decides each card."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        addresses: Callable[[], Sequence[str]],
        ledger: Ledger,
        message: str,
        *,
        seed: int,
    ) -> None:
        self.message = message
        self.run_id: str | None = None
        #: Frames by number, as a client keeps them.
        self.frames: dict[int, dict[str, object]] = {}
        self.error: object = None
        self.has_ended = False
        #: The run ended while nobody was attached: the client re-reads the thread instead of the last frames.
        self.came_late = False
        self.doubts = 0
        self.attaches = 0
        self._http = http
        self._addresses = addresses
        self._ledger = ledger
        self._random = Random(seed)
        self._decided: set[int] = set()

    async def turn(self) -> None:
        """The whole turn, to its end."""
        while not self.has_ended:
            await self._read_for_a_while(until_card=False)

    async def ask(self) -> None:
        """The turn up to its card, undecided."""
        while not self.cards():
            await self._read_for_a_while(until_card=True)

    def cards(self) -> list[int]:
        """Numbers of the cards that were shown."""
        return [number for number, frame in self.frames.items() if frame["kind"] == "approval-requested"]

    async def _read_for_a_while(self, *, until_card: bool) -> None:
        """Attach somewhere, read some frames, and drop the connection."""
        self.attaches += 1
        left = self._random.randint(1, 30)
        try:
            async with self._connect() as response:
                if response.status_code != 200:
                    await self._refused(response)
                    return
                self.run_id = response.headers["X-Agent-Run-Id"]
                reader = Reader(response)
                while left and not self.has_ended and (block := await reader.next()) is not None:
                    left -= block.id is not None
                    await self._take(block, until_card=until_card)
                    if until_card and self.cards():
                        return
        except httpx.TransportError:
            await asyncio.sleep(PAUSE_S)  # as a client does before it tries again

    def _connect(self) -> AbstractAsyncContextManager[httpx.Response]:
        address = self._random.choice(self._addresses())
        if self.run_id is None:
            headers = {"idempotency-key": self.message}
            return self._http.stream("POST", f"{address}/agent/chat", json={"message": self.message}, headers=headers)
        after = {"after": str(max(self.frames))} if self.frames else {}
        return self._http.stream("GET", f"{address}/agent/chat/{self.run_id}/stream", params=after)

    async def _refused(self, response: httpx.Response) -> None:
        await response.aread()
        if response.status_code in FAULTS:
            await asyncio.sleep(PAUSE_S)
            return
        assert response.status_code == 404, response.text
        if response.json()["code"] == "stream_reset":
            self.frames.clear()
        else:
            self.has_ended = self.came_late = True

    async def _take(self, block: Block, *, until_card: bool) -> None:
        if block.event == "error":
            self.error = block.data
        if block.event in ("done", "error"):
            self.has_ended = True
        if block.id is None:
            return
        number = int(block.id)
        assert not self.frames or number > max(self.frames), "a number came twice, or out of order"
        self.frames[number] = block.data
        if block.kind == "approval-requested" and number not in self._decided and not until_card:
            await self.decide(number)

    async def decide(self, number: int) -> None:
        """Approve, or, when nobody knows whether it happened, go and look."""
        card = self.frames[number]
        order = self.message.partition(" ")[2]
        # With the digest: an answer to this card that arrives late must not be taken for one to the next card.
        verb, answer = "approve", {"toolCallId": card["id"], "digest": card["digest"]}
        if "inDoubt" in card:
            self.doubts += 1
            if order in await asyncio.to_thread(self._ledger.effects):
                verb, answer = "settle", {"toolCallId": card["id"], "output": f"{order} transferred"}
        while True:
            address = self._random.choice(self._addresses())
            try:
                response = await self._http.post(f"{address}/agent/tool-call/{verb}", json=answer)
            except httpx.TransportError:
                await asyncio.sleep(PAUSE_S)
                continue
            if response.status_code not in FAULTS:
                break
            await asyncio.sleep(PAUSE_S)
        # An answer that got lost on its way back has been given all the same, and the run may have gone on since.
        code = response.json().get("code")
        assert response.status_code == 200 or code in ("already_decided", "card_changed"), response.text
        self._decided.add(number)
