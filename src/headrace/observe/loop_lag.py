"""How late the event loop runs what is due: a timer ten times a second, and by how much it was late."""

import asyncio
from collections.abc import Callable

from headrace.observe.histogram import LATENCY_BOUNDS_S, Histogram

_EVERY_S = 0.1


class LoopLag:
    """Belongs to the event loop in which `start` is called."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock: that of some event loops stands still while the loop is busy."""
        self.lateness = Histogram(LATENCY_BOUNDS_S)
        """Seconds by which each timer was late."""
        self._now_s = now_s
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_s = self._now_s() + _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self.lateness.observe(max(0.0, self._now_s() - self._due_s))
        self.start()
