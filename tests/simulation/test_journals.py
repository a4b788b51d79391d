"""Runs that were begun by earlier builds: their journals replay, and parked ones are finished by today's code.

`journals/` holds what `record_journals.py` wrote: `before-patches` in the shape from before `agent:parallel-tools` and
`agent:history-select`, `0.1` in the one after.
"""

from pathlib import Path

import pytest

from signoff import Agent, Signoff
from signoff.domain.jsonvalue import JsonObject, as_object, decode
from signoff.service.replay_check import ReplayCheck
from signoff.testing.scripted import ScriptedModel
from tests.simulation.older_shape import before_patches
from tests.simulation.play import play, undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import APPROVED, ASKED_IN_A_TOOL, GRANDCHILD, INTAKE, MIXED, REMEMBERED, three
from tests.simulation.seen import assert_same

JOURNALS = Path(__file__).parent / "journals"
FILES = sorted(JOURNALS.glob("*/*.json"))


@pytest.fixture
def check() -> ReplayCheck:
    """A check by an application that never heard of the agents and tools in the journals."""
    app = Signoff(
        agents=[Agent("newcomer", instructions="Be new.", model=ScriptedModel([]))],
        database="memory://",
        durable=False,
    )
    return ReplayCheck(app.deps.turn)


def journal(file: Path) -> JsonObject:
    """A recorded journal."""
    return as_object(decode(file.read_text()), what=file.name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_recorded_journal_replays(check: ReplayCheck, file: Path) -> None:
    """All of it, to its last entry."""
    recorded = journal(file)
    report = await check.one(recorded)

    assert report.ok, f"{file.name}: position {report.position} holds {report.expected}, the code asks {report.found}"
    entries = recorded["entries"]
    assert isinstance(entries, list)
    assert report.replayed == len(entries)


def test_both_shapes_are_recorded() -> None:
    """The same scenarios in each, parked and ended; only the newer one has markers."""
    older, newer = (sorted((JOURNALS / shape).glob("*.json")) for shape in ("before-patches", "0.1"))

    assert [file.name for file in older if ".1." in file.name] == [file.name for file in newer if ".1." in file.name]
    assert len(older) > 50
    assert not any('"patch"' in file.read_text() for file in older)
    assert all('"agent:parallel-tools"' in file.read_text() for file in newer)


@pytest.mark.parametrize("name", ["three-actions-ABC", "reads-beside-an-action"])
def test_the_shapes_differ(name: str) -> None:
    """Otherwise replaying the older one would prove nothing."""
    older, newer = (
        [f"{entry['kind']}:{entry['name']}" for entry in _entries(JOURNALS / shape / f"{name}.1.ended.json")]
        for shape in ("before-patches", "0.1")
    )
    assert [entry for entry in newer if not entry.startswith("patch:")] != older


def _entries(file: Path) -> list[JsonObject]:
    entries = journal(file)["entries"]
    assert isinstance(entries, list)
    return [as_object(entry, what="an entry") for entry in entries]


OLD_RUNS = [APPROVED, three("ABC"), MIXED, REMEMBERED, ASKED_IN_A_TOOL, INTAKE, GRANDCHILD]


@pytest.mark.parametrize("scenario", OLD_RUNS, ids=str)
def test_a_parked_run_of_the_older_shape_is_finished_by_todays_code(scenario: Scenario) -> None:
    """The older build's process ends when the run has parked; today's build goes on with it."""
    older = play(scenario, first_body=before_patches)
    parked = next(place for place in older.places if place.when == "after" and "engine:park" in place.labels)

    finished = play(scenario, first_body=before_patches, deaths=frozenset({parked.number}))

    assert_same(finished.seen, undisturbed(scenario).seen, interleaves=True)
    first = min(finished.seen.rows.journals)
    assert "patch" not in {entry.kind for entry in finished.seen.rows.journals[first]}


@pytest.mark.parametrize("scenario", [APPROVED, MIXED], ids=str)
def test_a_run_of_the_older_shape_is_recovered_by_todays_code(scenario: Scenario) -> None:
    """From wherever the older build's process died."""
    older = play(scenario, first_body=before_patches)
    for place in older.places:
        finished = play(scenario, first_body=before_patches, deaths=frozenset({place.number}))
        assert_same(finished.seen, undisturbed(scenario).seen, interleaves=True)
