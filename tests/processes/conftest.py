"""Workers on a database of their own, and the web process that a test is itself."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from signoff import Signoff
from tests.conformance.engine.dbos_world import database, prepare
from tests.processes.fleet import Fleet, Nursery
from tests.processes.stage_app import DATABASE, FOLDER, Stage, desk


@pytest.fixture(scope="session")
def empty() -> Iterator[str]:
    """A PostgreSQL database with all tables, to be copied."""
    with database() as url:
        asyncio.run(prepare(url))
        yield url


@pytest.fixture
def url(empty: str) -> Iterator[str]:
    """A PostgreSQL database."""
    with database(template=empty) as url:
        yield url


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Forks workers of the stage."""
    with Nursery.of("tests.processes.stage_app") as nursery:
        yield nursery


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """What the test shares with its workers."""
    folder = tmp_path / "stage"
    folder.mkdir()
    return Stage(folder)


@pytest.fixture
async def web(url: str, stage: Stage) -> AsyncIterator[Signoff]:
    """A web process: this one. It drives nothing."""
    async with desk(url, stage).running() as app:
        yield app


@pytest.fixture
async def workers(nursery: Nursery, url: str, stage: Stage, tmp_path: Path) -> AsyncIterator[Fleet]:
    """No worker yet."""
    folder = tmp_path / "workers"
    folder.mkdir()
    async with Fleet(nursery, folder, {DATABASE: url, FOLDER: str(stage.folder)}).running() as fleet:
        yield fleet
