"""Code in the documentation is code: tests run it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def snippets(page: str, language: str = "python") -> list[str]:
    """The fenced blocks of `page`, a path from the repository's root, in order."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(source: str, *, page: str) -> dict[str, object]:
    """Execute a block as a module of its own; returns its names."""
    names: dict[str, object] = {"__name__": page}
    exec(compile(source, page, "exec"), names)
    return names
