"""How late the event loop runs what is due: a timer ten times a second, and by how much it was late."""

import asyncio
from collections import deque
from collections.abc import Callable

from headrace.observe.histogram import LATENCY_BOUNDS_S, Histogram

_EVERY_S = 0.1
_SLOT_S, _SLOTS = 5.0, 12


class LoopLag:
    """Belongs to the event loop in which `start` is called."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock: that of some event loops stands still while the loop is busy."""
        self.lateness = Histogram(LATENCY_BOUNDS_S)
        """Seconds by which each timer was late."""
        self._now_s = now_s
        self._due_s = 0.0
        self._worst: deque[tuple[int, float]] = deque(maxlen=_SLOTS)
        """The longest delay of each time slot, by its number."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due_s = self._now_s() + _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._fire)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        now_s = self._now_s()
        late_s, slot = max(0.0, now_s - self._due_s), int(now_s / _SLOT_S)
        self.lateness.observe(late_s)
        if self._worst and self._worst[-1][0] == slot:
            self._worst[-1] = (slot, max(late_s, self._worst[-1][1]))
        else:
            self._worst.append((slot, late_s))
        self.start()

    def worst_s(self) -> float:
        """The longest delay of the last minute."""
        oldest = int(self._now_s() / _SLOT_S) - _SLOTS
        return max((late_s for slot, late_s in self._worst if slot > oldest), default=0.0)
