"""Writes the journals that `test_journals.py` replays: `python -m tests.simulation.record_journals FOLDER [--older]`.

Journals of a released shape are kept as they are. When the shape changes, record the new one into a new folder.
"""

import json
import sys
import tempfile
from pathlib import Path

from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.ports.engine import Engine
from signoff.ports.store import Tx
from signoff.service.operate import exported
from signoff.testing.stepped import stepped
from tests.simulation.older_shape import before_patches
from tests.simulation.play import SteppedStage, empty_database
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import SCENARIOS


class Recording(SteppedStage):
    """A play that keeps the journals of its runs when people first see a card, and at its end."""

    def __init__(self, scenario: Scenario, url: str, *, older: bool) -> None:
        super().__init__(scenario, url, first_body=before_patches if older else None)
        self.journals: dict[str, JsonObject] = {}

    async def record(self) -> dict[str, JsonObject]:
        """The journals by file name; none if the scenario never asks anybody."""
        await self.play()
        return self.journals

    async def _act(self, card: Call) -> bool:
        if not self.journals:
            self.journals = await self._export("parked")
        return await super()._act(card)

    async def _close(self) -> None:
        if self.journals:
            self.journals |= await self._export("ended")
        await super()._close()

    async def _export(self, when: str) -> dict[str, JsonObject]:
        engine = self.world.app.engine
        assert engine is not None
        journals = await self.world.read(lambda tx: _journals(tx, engine))
        return {f"{self.scenario}.{number}.{when}.json": each for number, each in enumerate(journals, start=1)}


def _journals(tx: Tx, engine: Engine) -> list[JsonObject]:
    return [exported(run, engine.history(tx, run.id)) for run in engine.runs(tx, limit=1000)]


def main(folder: Path, *, older: bool) -> None:
    """Record all scenarios that park."""
    folder.mkdir(parents=True)
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as home, stepped() as run:
            file = Path(home) / "desk.db"
            file.write_bytes(empty_database())
            journals = run(Recording(scenario, f"sqlite:///{file}", older=older).record())
        for name, journal in journals.items():
            (folder / name).write_text(json.dumps(journal, indent=1, ensure_ascii=False) + "\n")
        print(f"{len(journals):3} {scenario}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), older="--older" in sys.argv[2:])
