"""Worker groups: who serves a task, and how many at once."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from signoff.ports.engine import Handler

#: For groups that the limits do not name.
CONCURRENCY = 64


@dataclass(slots=True, eq=False)
class Group:
    """A handler and its slots. Until a handler is served, tasks wait: nothing is marked as started."""

    slots: asyncio.Semaphore
    handler: Handler | None = None
    served: asyncio.Event = field(default_factory=asyncio.Event)


class Groups:
    """The groups of one engine, by name."""

    def __init__(self, concurrency: Mapping[str, int]) -> None:
        self._concurrency = concurrency
        self._groups: dict[str, Group] = {}

    def get(self, name: str) -> Group:
        """The group; it is made when it is first asked for."""
        group = self._groups.get(name)
        if group is None:
            group = Group(asyncio.Semaphore(self._concurrency.get(name, CONCURRENCY)))
            self._groups[name] = group
        return group

    def serve(self, name: str, handler: Handler) -> None:
        """Serve the group's tasks from now on; replaces an earlier handler."""
        group = self.get(name)
        group.handler = handler
        group.served.set()
