"""Who wants to be woken when a stream has new frames. Shared by all stores."""

import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


class Subscriptions:
    """Callbacks by stream. Use it from the event loop."""

    def __init__(self) -> None:
        self._by_stream: dict[str, dict[object, Callable[[], None]]] = {}

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

    def wake(self, stream_ids: Iterable[str] | None) -> None:
        """Call back those who wait for these streams; None: all."""
        for stream_id in list(self._by_stream) if stream_ids is None else stream_ids:
            for wake in list(self._by_stream.get(stream_id, {}).values()):
                try:
                    wake()
                except Exception:
                    logger.exception("waking a reader of stream %r failed", stream_id)
