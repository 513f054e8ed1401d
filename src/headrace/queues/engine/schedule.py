"""Due times of millions of messages. Pure.

The times of the open chunk of the log are on a heap. Those of a complete chunk are packed in order (`packed_times`) in
the persisted index, and are read from there as they come: a second heap has the next one of each chunk. So a message
costs its two to four bytes in the index, and a little over a microsecond when it is due. Nothing is removed: callers
skip messages that are acked, or no longer waiting.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from pyroaring import BitMap64

from headrace.queues.engine.packed_times import Span, spans_of, step_of, time_of
from headrace.queues.engine.stored import CHUNK_BITS, TimesValue


class Schedule:
    def __init__(self) -> None:
        self._open: list[Span] = []
        """The times of the open chunk."""
        self._whole: list[tuple[int, int, int, Iterator[Span]]] = []
        """For each complete chunk: the next span, and an iterator over the others."""

    def add(self, first: int, last: int, at_ms: int) -> None:
        """Schedule messages of the open chunk."""
        heappush(self._open, (step_of(at_ms), first, last))

    def close(self, chunk: int, times: TimesValue) -> None:
        """The open chunk is complete, with these times: those that were added."""
        if self._open:
            self._read(chunk, times, self._open[0][0])
            self._open.clear()

    def load(self, chunk: int, times: TimesValue) -> None:
        """Load the times of a complete chunk."""
        self._read(chunk, times, times.start)

    def _read(self, chunk: int, times: TimesValue, from_step: int) -> None:
        spans = spans_of(times, chunk << CHUNK_BITS)
        for step, first, last in spans:
            if step >= from_step:
                heappush(self._whole, (step, first, last, spans))
                break

    @property
    def next_ms(self) -> int | None:
        """When the next message is due."""
        if not self._open and not self._whole:
            return None
        return time_of(min(heap[0][0] for heap in (self._open, self._whole) if heap))

    def due(self, now_ms: int, most: int) -> BitMap64 | None:
        """The messages that are due by now, each once. If there are many more than `most`, not all of them: then
        `next_ms` is in the past."""
        soonest_ms = self.next_ms
        if soonest_ms is None or soonest_ms > now_ms:
            return None
        due = BitMap64()
        while self._open and time_of(self._open[0][0]) <= now_ms:
            _, first, last = heappop(self._open)
            due.add_range(first, last + 1)
        heap = self._whole
        while heap and most > 0 and time_of(heap[0][0]) <= now_ms:
            _, first, last, spans = heap[0]
            due.add_range(first, last + 1)
            most -= last - first + 1
            following = next(spans, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (*following, spans))
        return due

    def forget_before(self, offset: int) -> None:
        """All messages below are acked: their chunks are not read any more."""
        chunk = offset >> CHUNK_BITS
        if any(first >> CHUNK_BITS < chunk for _, first, _, _ in self._whole):
            self._whole = [each for each in self._whole if each[1] >> CHUNK_BITS >= chunk]
            heapify(self._whole)
