"""Ids and randomness, so that tests can own them."""

from typing import Protocol


class Ids(Protocol):
    """Makes ids that are unique over all processes and time, and secrets that cannot be guessed."""

    def new(self, prefix: str) -> str:
        """A new id ``<prefix>_<text>``; ids made later sort later. At most 64 characters."""
        ...

    def secret(self) -> str:
        """An unguessable token, URL-safe text of at least 256 bits."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1), to spread retries."""
        ...
