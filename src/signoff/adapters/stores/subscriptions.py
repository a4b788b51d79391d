"""Who wants to hear of new frames, and who carries them further. Shared by all stores."""

import logging
from collections.abc import Callable, Iterable, Sequence

from signoff.ports.store import Emission

logger = logging.getLogger(__name__)


class Subscriptions:
    """Callbacks by stream. Use it from the event loop."""

    def __init__(self) -> None:
        self._by_stream: dict[str, dict[object, Callable[[], None]]] = {}
        self._carriers: dict[object, Callable[[Sequence[Emission]], None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_stream)

    def add(self, stream_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever `stream_id` is woken; returns what ends that (harmless the second time)."""
        token = object()
        self._by_stream.setdefault(stream_id, {})[token] = wake

        def end() -> None:
            wakes = self._by_stream.get(stream_id, {})
            if wakes.pop(token, None) is not None and not wakes:
                del self._by_stream[stream_id]

        return end

    def carry(self, take: Callable[[Sequence[Emission]], None]) -> Callable[[], None]:
        """Hand whatever is told to `take` first; returns what ends that."""
        token = object()
        self._carriers[token] = take

        def end() -> None:
            self._carriers.pop(token, None)

        return end

    def tell(self, emitted: Sequence[Emission]) -> None:
        """These were committed here."""
        if not emitted:
            return
        for take in list(self._carriers.values()):
            try:
                take(emitted)
            except Exception:
                logger.exception("carrying frames further failed")
        self.wake({emission.stream_id for emission in emitted})

    def wake(self, stream_ids: Iterable[str] | None) -> None:
        """Call back those who wait for these streams; None: all."""
        for stream_id in list(self._by_stream) if stream_ids is None else stream_ids:
            for wake in list(self._by_stream.get(stream_id, {}).values()):
                try:
                    wake()
                except Exception:
                    logger.exception("waking a reader of stream %r failed", stream_id)
