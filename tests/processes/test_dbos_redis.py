"""Redis is killed while turns run, and comes back: the runs go on, and no reader misses anything."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from signoff import Event, EventName, Signoff
from signoff.domain.frame import Frame, NumberedFrame
from signoff.errors import StreamReset
from signoff.ports.store import Tx
from tests.processes.fleet import Fleet, Nursery
from tests.processes.stage_app import DATABASE, FOLDER, LOOK_S, PATIENCE_S, REDIS, Stage, desk
from tests.processes.turns import ANA, assert_well, decide, send
from tests.services import Server, own_redis

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.timeout(150, method="signal")]

TURNS = 4


class Replica:
    """A web process of its own, as far as streams are concerned; `told` are its events."""

    def __init__(self, app: Signoff, told: list[Event]) -> None:
        self.app = app
        self.told = told

    async def tells(self, name: EventName) -> None:
        """Wait for the event of those who read."""
        async with asyncio.timeout(PATIENCE_S):
            while not any(event.name is name and event.data["side"] == "read" for event in self.told):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)


class Viewer:
    """A page that follows one run at one replica; `frames` by number, as it keeps them."""

    def __init__(self, replica: Replica, run_id: str) -> None:
        self.frames: dict[int, Frame] = {}
        self._replica = replica
        self._run_id = run_id
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """Read to the end. Whenever the stream breaks off, attach behind the last frame."""
        while not any(frame["kind"] == "done" for frame in self.frames.values()):
            try:
                attached = await self._replica.app.attach(
                    ANA, self._run_id, after=max(self.frames, default=0), even_ended=True
                )
            except StreamReset:
                self.frames.clear()
                continue
            async for numbered in attached.frames:
                assert numbered.seq > max(self.frames, default=0)
                self.frames[numbered.seq] = numbered.frame
                self._changed.set()

    async def sees(self, kind: str, text: str = "") -> Frame:
        """Wait for a frame."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for frame in self.frames.values():
                    if frame["kind"] == kind and text in str(frame.get("text")):
                        return frame
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def redis() -> Iterator[Server]:
    """A Redis of the test's own."""
    with own_redis() as server:
        yield server


@asynccontextmanager
async def replica(url: str, stage: Stage, redis: Server) -> AsyncIterator[Replica]:
    told: list[Event] = []
    async with desk(url, stage, {REDIS: redis.url}, subscribers=[told.append]).running() as app:
        yield Replica(app, told)


async def test_redis_dies_and_comes_back_while_turns_run(
    nursery: Nursery, url: str, stage: Stage, redis: Server, tmp_path: Path
) -> None:
    environment = {DATABASE: url, FOLDER: str(stage.folder), REDIS: redis.url}
    for number in range(TURNS):
        stage.shut(f"model-A-{number}-0")
        stage.shut(f"model-A-{number}-1")
    async with (
        replica(url, stage, redis) as one,
        replica(url, stage, redis) as other,
        Fleet(nursery, tmp_path, environment).running(workers=2) as workers,
        asyncio.TaskGroup() as group,
    ):
        run_ids = [await send(one.app, f"transfer A-{number}") for number in range(TURNS)]
        viewers = [[Viewer(at, run_id) for at in (one, other)] for run_id in run_ids]
        everybody = [viewer for pair in viewers for viewer in pair]
        for viewer in everybody:
            group.create_task(viewer.follow())
        for viewer in everybody:
            await viewer.sees("text", "Let me")
        assert len(keys(redis)) == TURNS

        await asyncio.to_thread(redis.stop, signal.SIGKILL)
        for number in range(TURNS):
            stage.open(f"model-A-{number}-0")
        for number, (here, there) in enumerate(viewers):
            shown = await here.sees("approval-requested")
            assert await there.sees("approval-requested") == shown
            await decide((one, other)[number % 2].app, shown)
        for viewer in everybody:
            await viewer.sees("tool-output")
            await viewer.sees("text", "It ")
        for worker in workers.workers:
            await worker.logged("Redis is away (publish")

        await asyncio.to_thread(redis.start)  # it has nothing of what it knew
        await one.tells(EventName.SINK_RESTORED)
        await other.tells(EventName.SINK_RESTORED)
        for number in range(TURNS):
            stage.open(f"model-A-{number}-1")
        for viewer in everybody:
            await viewer.sees("done")

        for number, run_id in enumerate(run_ids):
            await assert_well(one.app, run_id)
            stored = await one.app.store.read(partial(frames_of, run_id=run_id))
            assert len(stage.effects(f"transfer A-{number}")) == 1
            for viewer in viewers[number]:
                assert viewer.frames == {numbered.seq: numbered.frame for numbered in stored}
        assert len(keys(redis)) == TURNS  # the workers have gone back to it


def frames_of(tx: Tx, run_id: str) -> list[NumberedFrame]:
    """The run's stream as the database has it."""
    return tx.frames(run_id, after=0, limit=1000)


def keys(redis: Server) -> list[bytes]:
    """The streams that Redis has."""
    with Redis.from_url(redis.url) as client:
        found: list[bytes] = client.keys("signoff:*")
    return found
