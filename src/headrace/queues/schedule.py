"""What is to happen with messages at a time, for millions of them. Pure.

Times are rounded up to `STEP_MS`: nothing is early, and nothing later than that. What is due within the minute that has
begun is in bitmaps, one per step. What is due later is packed by the minute, 8 bytes per message (ranges of messages
with one time cost nothing each), and put into bitmaps when its minute begins, at most `_OPENED_AT_ONCE` in one call.
Nothing is removed: whoever asks passes over messages that are done, or not waiting any more.
"""

from array import array
from heapq import heappop, heappush

from pyroaring import BitMap64

_STEP_BITS = 6
STEP_MS = 1 << _STEP_BITS
_MINUTE_BITS = 10
"""Steps to the minute, which is 65.5 seconds."""
_STEP_IN_MINUTE = (1 << _MINUTE_BITS) - 1
_OFFSET_BITS = 54
_OFFSET = (1 << _OFFSET_BITS) - 1
_SHORT = 4
"""A range of this many is cheaper one by one."""
_OPENED_AT_ONCE = 20_000


class _Minute:
    __slots__ = ("ranges", "singles")

    def __init__(self) -> None:
        self.singles = array("Q")
        self.ranges: list[tuple[int, int, int]] = []


class Schedule:
    def __init__(self) -> None:
        self._near: dict[int, BitMap64] = {}
        self._near_heap: list[int] = []
        self._far: dict[int, _Minute] = {}
        self._far_heap: list[int] = []
        self._minute = -1
        """The last that has begun."""

    def add(self, offset: int, at_ms: int) -> None:
        step = max(0, -(-at_ms >> _STEP_BITS))
        if step >> _MINUTE_BITS <= self._minute:
            self._bitmap(step).add(offset)
        else:
            self._later(step).singles.append((step & _STEP_IN_MINUTE) << _OFFSET_BITS | offset)

    def add_range(self, first: int, last: int, at_ms: int) -> None:
        step = max(0, -(-at_ms >> _STEP_BITS))
        if step >> _MINUTE_BITS <= self._minute:
            self._bitmap(step).add_range(first, last + 1)
        elif last - first < _SHORT:
            for offset in range(first, last + 1):
                self.add(offset, at_ms)
        else:
            self._later(step).ranges.append((step, first, last))

    def _bitmap(self, step: int) -> BitMap64:
        found = self._near.get(step)
        if found is None:
            found = self._near[step] = BitMap64()
            heappush(self._near_heap, step)
        return found

    def _later(self, step: int) -> _Minute:
        minute = step >> _MINUTE_BITS
        found = self._far.get(minute)
        if found is None:
            found = self._far[minute] = _Minute()
            heappush(self._far_heap, minute)
        return found

    @property
    def next_ms(self) -> int | None:
        """When to ask again."""
        times = []
        if self._near_heap:
            times.append(self._near_heap[0] << _STEP_BITS)
        if self._far_heap:
            times.append(self._far_heap[0] << _STEP_BITS + _MINUTE_BITS)
        return min(times, default=None)

    def due(self, now_ms: int) -> BitMap64 | None:
        """What is due by now, each once. If much is, not all of it at once: then `next_ms` is in the past."""
        minute = now_ms >> _STEP_BITS + _MINUTE_BITS
        if minute > self._minute:
            self._open(minute)
        due = None
        heap = self._near_heap
        while heap and heap[0] << _STEP_BITS <= now_ms:
            found = self._near.pop(heappop(heap))
            if due is None:
                due = found
            else:
                due |= found
        return due

    def _open(self, minute: int) -> None:
        """Put what is due in the minutes up to this one into bitmaps, or a part of it."""
        room = _OPENED_AT_ONCE
        while self._far_heap and self._far_heap[0] <= minute and room > 0:
            number = self._far_heap[0]
            opened = self._far[number]
            for step, first, last in opened.ranges:
                self._bitmap(step).add_range(first, last + 1)
            opened.ranges.clear()
            part = sorted(opened.singles[-room:])
            del opened.singles[-room:]
            room -= len(part) + 1
            base = number << _MINUTE_BITS
            for packed in part:
                self._bitmap(base + (packed >> _OFFSET_BITS)).add(packed & _OFFSET)
            if not opened.singles:
                heappop(self._far_heap)
                del self._far[number]
        if not self._far_heap or self._far_heap[0] > minute:
            self._minute = minute
