"""How committed frames reach those who read a stream, in whatever process they read.

The store has every frame, numbers them and wakes readers. A sink carries copies past the store, so that a crowd of
readers costs the database little. What it carries may come late, twice or not at all: the store decides.
"""

from collections.abc import Sequence
from typing import Protocol

from signoff.domain.frame import NumberedFrame
from signoff.ports.events import EventBus
from signoff.ports.store import Store


class Follower(Protocol):
    """One reader's place at a stream. Nothing that is committed after its making escapes it."""

    async def behind(self, position: int) -> Sequence[NumberedFrame]:
        """Wait for more: the frames numbered `position + 1`, `position + 2`, …, as far as they were carried.

        None: read the store up to its end, and call again with where that was. Something was committed that was
        not carried, or frames were withdrawn, or nobody can tell.

        Args:
            position: the number of the last frame that was returned here, or the stream's last number in a snapshot
                of the store that was read after this follower was made.
        """
        ...

    def close(self) -> None:
        """The reader has left. Idempotent."""
        ...


class Sink(Protocol):
    """Carries committed frames to readers. Trouble on the way is never a reader's, a run's or a caller's error."""

    @property
    def shared(self) -> bool:
        """Whether readers in other processes hear of frames that are committed in this one."""
        ...

    async def open(self, store: Store, events: EventBus) -> None:
        """Begin to carry what `store`, which is open, commits. `events` hears of trouble, which is no error here."""
        ...

    async def close(self) -> None:
        """Stop carrying. Readers go on with the store. Idempotent."""
        ...

    def follow(self, stream_id: str) -> Follower:
        """A place for one more reader."""
        ...
