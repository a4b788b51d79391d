"""What the use cases share. Built once, by `app.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """Ports and settings of the use cases."""
