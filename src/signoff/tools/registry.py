"""The tools of one agent, by name."""

from collections.abc import Iterable, Iterator

from signoff.errors import ConfigurationError
from signoff.tools.decorator import as_tool
from signoff.tools.definition import Tool


class ToolRegistry:
    """Tools in the order they were given; a name occurs once."""

    def __init__(self, tools: Iterable[object] = (), *, owner: str = "") -> None:
        """Take `Tool`s, functions marked with `@tool`, and instances of classes marked so.

        Raises:
            ConfigurationError: an item is no tool, or two have one name; names `owner`.
        """
        self._tools: dict[str, Tool] = {}
        for item in tools:
            tool = as_tool(item)
            if tool.name in self._tools:
                whose = f"agent {owner!r}" if owner else "this registry"
                raise ConfigurationError(f"{whose} has two tools named {tool.name!r}; pass name=... to rename one")
            self._tools[tool.name] = tool

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """The tool, or None if there is none of this name."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
