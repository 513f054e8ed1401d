"""Timers of a coordinator, on one heap: no task and no event loop timer per member or transaction.

A timer has a key; setting it again moves it, cancelling removes it. The stale heap entries this leaves are dropped when
they reach the top, and the heap is rebuilt when they outnumber the live ones.
"""

import asyncio
import heapq
from collections.abc import Callable, Hashable
from itertools import count

from headrace.runtime.clock import Clock

_REBUILD_FROM = 1024


class Timers:
    """A heap of keyed timers, fired by `fire_due`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        """Deadlines, each with the order in which they were set. A stale one must not hold its key, which may be a
        large object, until a deadline that may be days away."""
        self._keys: dict[int, Hashable] = {}
        """By order, the keys of the timers that are set."""
        self._alive: dict[Hashable, tuple[float, int, Callable[[], None]]] = {}
        self._order = count()

    def __len__(self) -> int:
        return len(self._alive)

    def set(self, key: Hashable, deadline_ms: float, fire: Callable[[], None]) -> None:
        """Fire at `deadline_ms`, replacing this key's earlier deadline."""
        self.cancel(key)
        order = next(self._order)
        self._alive[key] = (deadline_ms, order, fire)
        self._keys[order] = key
        heapq.heappush(self._heap, (deadline_ms, order))
        if len(self._heap) > _REBUILD_FROM and len(self._heap) > 2 * len(self._alive):
            self._heap = [(deadline, number) for deadline, number, _ in self._alive.values()]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        alive = self._alive.pop(key, None)
        if alive is not None:
            del self._keys[alive[1]]

    def deadline_of(self, key: Hashable) -> float | None:
        alive = self._alive.get(key)
        return None if alive is None else alive[0]

    def next_deadline_ms(self) -> float | None:
        self._drop_leftovers()
        return self._heap[0][0] if self._heap else None

    def fire_due(self, now_ms: float) -> int:
        """Fire all due timers, in order of deadline; returns how many. Callbacks may set new timers."""
        fired = 0
        while True:
            self._drop_leftovers()
            if not self._heap or self._heap[0][0] > now_ms:
                return fired
            _, order = heapq.heappop(self._heap)
            _, _, fire = self._alive.pop(self._keys.pop(order))
            fire()
            fired += 1

    def clear(self) -> None:
        self._heap.clear()
        self._keys.clear()
        self._alive.clear()

    def _drop_leftovers(self) -> None:
        heap = self._heap
        while heap and heap[0][1] not in self._keys:
            heapq.heappop(heap)


class TimerLoop(Timers):
    """Timers that fire in the event loop: one loop timer, for the earliest deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0.0

    def set(self, key: Hashable, deadline_ms: float, fire: Callable[[], None]) -> None:
        super().set(key, deadline_ms, fire)
        if self._armed is None or deadline_ms < self._armed_for_ms:
            self._arm(deadline_ms)

    def clear(self) -> None:
        super().clear()
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self, deadline_ms: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        delay_s = max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000
        self._armed_for_ms = deadline_ms
        self._armed = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._armed = None
        self.fire_due(self._clock.monotonic_ms())
        next_ms = self.next_deadline_ms()
        if next_ms is not None and (self._armed is None or next_ms < self._armed_for_ms):
            self._arm(next_ms)
