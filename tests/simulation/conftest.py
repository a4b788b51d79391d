"""Says at the end how many places to die there were."""

from collections import Counter

import pytest

COUNTS = pytest.StashKey[Counter[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count the plays that were asked for."""
    counts: Counter[str] = Counter()
    for item in items:
        callspec = getattr(item, "callspec", None)
        kill = callspec.params.get("kill") if callspec is not None else None
        if kill is not None:
            counts[f"{kill.scenario}{' (eager)' if kill.eager else ''}"] += 1
    config.stash[COUNTS] = counts


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The numbers, by scenario."""
    counts = config.stash.get(COUNTS, Counter())
    if not counts:
        return
    terminalreporter.section("places to die")
    for name, count in counts.items():
        terminalreporter.write_line(f"{count:5}  {name}")
    terminalreporter.write_line(f"{counts.total():5}  in all")
