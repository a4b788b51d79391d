"""Stories on DBOS and PostgreSQL: the worker dies at a commit, and another one takes over.

Afterwards everything is as in the undisturbed play on the embedded engine. One story is played with a death before and
after each of its commits, also DBOS's own (a claim, an outcome, a recovery); the others where they go another way.
Left out, for three minutes on two cores: the other scenarios, which are the same loop over the same commits, and what
real time decides (streamed text, beats, second looks); chaos tests kill real processes there.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tests.conformance.engine.dbos_world import database, empty, prepare
from tests.simulation.dbos_world import Death, PlayedOnDbos, play_on_dbos
from tests.simulation.play import undisturbed
from tests.simulation.scenario import Scenario
from tests.simulation.scenarios import (
    APPROVED,
    ASKED,
    CANCELLED,
    CANCELLED_GRANDCHILD,
    DETACHED,
    EXPIRED,
    GRANDCHILD,
    MIXED,
    PARALLEL_CHILDREN,
    REJECTED,
)
from tests.simulation.seen import assert_same, attempts
from tests.simulation.stage import is_doubtful

pytestmark = pytest.mark.postgres

#: How often each commit is there, by what is in it; ids are left out.
COMMITS: Mapping[str, int] = {
    # a worker starts
    "dbos:upsert_queue": 3,
    "dbos:create_application_version": 1,
    "engine:beat": 1,
    "engine:bury": 1,
    "engine:due": 1,
    "engine:lost": 1,
    # what is put into a queue is claimed and done, by DBOS and by us
    "dbos:start_queued_workflows": 8,
    "dbos:update_workflow_outcome": 8,
    "engine:claim": 5,
    "engine:marks": 2,
    "engine:park": 4,
    "engine:task": 3,
    # the turn
    "send": 1,
    "persist:run:start": 1,
    "quota:check": 1,
    "persist:user": 1,
    "persist:title": 1,
    "history:window": 1,
    "dispatch llm:0": 2,
    "llm:0": 1,
    "persist:step:0": 1,
    "persist:toolcall:call": 1,
    "wait tool:run:call": 2,
    "decide:approve": 1,
    "persist:approved:call": 1,
    "dispatch tool:call": 2,
    "tool:call": 1,
    "persist:toolexec:call": 1,
    "dispatch llm:1": 2,
    "llm:1": 1,
    "persist:step:1": 1,
    "persist:run:end": 1,
    "engine:end": 1,
}
MARKS: Mapping[str, int] = {
    "before reply": 2,
    "in reply": 2,
    "after reply": 2,
    "before refund A1": 1,
    "after refund A1": 1,
}

#: Real time says how often these come: what nobody waits for goes with the next commit or alone, and a wake that finds
#: its run still on the way out of memory tries again.
BY_REAL_TIME = ("begin:", "text:", "usage:", "engine:again")
#: Members of a commit that is named after another one of them.
TOGETHER = frozenset({"quota:check", "persist:title", "persist:approved:call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A scenario with deaths; the last of them is the one that the test is about."""

    scenario: Scenario
    deaths: tuple[Death, ...]

    def __str__(self) -> str:
        return "-then-".join([str(self.scenario), *map(str, self.deaths)])


def stories(
    scenario: Scenario,
    commits: Mapping[str, Sequence[int]],
    marks: Mapping[str, Sequence[int]] | None = None,
    *,
    first: Death | None = None,
) -> list[Story]:
    """A death before and after each of these commits and at each of these marks, perhaps after a `first` one."""
    deaths = [
        Death(when, label, nth) for label, numbers in commits.items() for nth in numbers for when in ("before", "after")
    ]
    deaths += [Death("at", label, nth) for label, numbers in (marks or {}).items() for nth in numbers]
    return [Story(scenario=scenario, deaths=(death,) if first is None else (first, death)) for death in deaths]


def each(counts: Mapping[str, int]) -> dict[str, Sequence[int]]:
    """All of them: the first, the second, …"""
    return {label: range(1, count + 1) for label, count in counts.items() if label not in TOGETHER}


STORIES = [
    *stories(APPROVED, each(COMMITS), each(MARKS)),
    *stories(REJECTED, {"decide:reject": [1], "wait tool:run:call": [2], "persist:toolreject:call": [1]}),
    *stories(
        EXPIRED,
        {
            "engine:due": [2, 3],
            "persist:expire:call": [1],
            "wait tool:run:call": [2],
            "persist:toolreject:call": [1],
        },
    ),
    *stories(ASKED, {"persist:toolcall:call": [1], "decide:answer": [1], "persist:toolexec:call": [1]}),
    *stories(CANCELLED, {"engine:park": [2], "dbos:update_workflow_outcome": [3], "cancel": [1]}),
    *stories(CANCELLED_GRANDCHILD, {"engine:park": [6], "cancel": [1]}),
    *stories(
        MIXED,
        {
            "persist:toolcall:call": [1, 2, 3],
            "dispatch tool:call": [1, 2, 3, 4],
            "engine:task": [2, 3, 4],
            "tool:call": [1, 2, 3],
            "persist:toolexec:call": [1, 2, 3],
            "engine:park": [2, 3, 4],
            "engine:claim": [3, 4, 5],
        },
        {"before read A1": [1], "after read A1": [1], "before read A2": [1], "after read A2": [1]},
    ),
    *stories(
        GRANDCHILD,
        {
            "child child:call": [1, 2, 3, 4],
            "persist:run:start": [2, 3],
            "engine:park": [3, 5, 6, 8, 10],
            "decide:approve": [1],
            "engine:claim": [3, 6, 8, 10, 12],
            "persist:run:end": [1, 2],
            "engine:end": [1, 2, 3],
        },
    ),
    *stories(
        DETACHED,
        {
            "start_child detach:call": [1],
            "persist:run:start": [2],
            "engine:claim": [3, 4, 5],
            "engine:park": [2, 3, 4],
            "engine:end": [1, 2],
        },
    ),
    *stories(
        APPROVED,
        {
            "engine:bury": [1],
            "dbos:reenqueue_for_recovery": [1],
            "engine:due": [1],
            "engine:lost": [1],
            "dbos:start_queued_workflows": [1, 2, 3],
            "dbos:update_workflow_outcome": [1, 2],
            "engine:task": [1],
            "engine:claim": [1, 2],
            "dispatch tool:call": [1],
            "persist:indoubt:call:1": [1],
            "wait tool:run:call:doubt:1": [1, 2],
            "engine:park": [1],
            "decide:settle": [1],
            "persist:toolexec:call": [1],
        },
        first=Death("at", "after refund A1"),
    ),
]


@pytest.fixture(scope="module")
def prepared() -> Iterator[str]:
    """A database with all tables, of this process's own."""
    with database() as url:
        asyncio.run(prepare(url))
        yield url


@pytest.fixture
def url(prepared: str) -> Iterator[str]:
    """The database with nothing in it; fails if a process of the test has left a connection behind."""
    yield prepared
    empty(prepared)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_death_changes_nothing_that_anybody_sees(story: Story, url: str) -> None:
    """Die, let another worker take over on the same database, and look from outside."""
    died = play_on_dbos(story.scenario, url, *story.deaths)

    assert len(died.died_at) == len(story.deaths), "it never came there"
    assert_same(died.seen, undisturbed(story.scenario).seen, interleaves=story.scenario.interleaves)
    assert died.seen.in_doubt == doubtful(died)
    assert all(count <= 1 + len(story.deaths) for count in attempts(died.seen).values())


def doubtful(died: PlayedOnDbos) -> frozenset[str]:
    """The calls whose steps had begun and not settled at a death, and that only a person can judge."""
    begun = {name.split(":")[1] for name in died.started if name.startswith("tool:")}
    return frozenset(call_id for call_id in begun if is_doubtful(died, call_id))


def test_no_commit_is_left_out(url: str) -> None:
    """Of the story that is played at every commit; its numbers are the same each time."""
    alive = play_on_dbos(APPROVED, url)
    counts = {
        when: Counter(label for place in alive.places if place.when == when for label in place.labels)
        for when in ("before", "after", "at")
    }
    for when in ("before", "after"):
        assert {label: n for label, n in counts[when].items() if not label.startswith(BY_REAL_TIME)} == COMMITS
    assert counts["at"] == MARKS


@pytest.mark.parametrize("scenario", [PARALLEL_CHILDREN], ids=str)
def test_both_engines_tell_the_same_story(scenario: Scenario, url: str) -> None:
    """Where nothing dies; the other stories say so with every death."""
    assert_same(play_on_dbos(scenario, url).seen, undisturbed(scenario).seen, interleaves=scenario.interleaves)
