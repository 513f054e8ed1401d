"""The retention of messages that were sent with a delay, which begins when they are due. Pure.

Messages that were due within one turn, a sixty-fourth of the retention, share a bitmap, and age out together with the
last of them. Acked messages stay in it until all messages before them are acked: callers skip them.
"""

from itertools import islice

from pyroaring import BitMap64

_TURNS = 64
_SHORTEST_MS = 1000


def turn_ms(retention_ms: int) -> int:
    """By how much such a message may age out too late."""
    return max(retention_ms // _TURNS, _SHORTEST_MS)


class DelayedRetention:
    def __init__(self, retention_ms: int) -> None:
        self.turn_ms = turn_ms(retention_ms)
        self._turns: dict[int, BitMap64] = {}
        """By the time each ends."""
        self.oldest_ms: int | None = None
        """The end of the first turn."""

    def __bool__(self) -> bool:
        return bool(self._turns)

    def end_of(self, due_ms: int) -> int:
        """The end of the turn that contains a due time."""
        return (due_ms // self.turn_ms + 1) * self.turn_ms

    def add(self, first: int, last: int, due_ms: int) -> None:
        self._of(self.end_of(due_ms)).add_range(first, last + 1)

    def add_all(self, offsets: BitMap64, end_ms: int) -> None:
        """Messages of the turn that ends then."""
        self._of(end_ms).update(offsets)

    def _of(self, end_ms: int) -> BitMap64:
        found = self._turns.get(end_ms)
        if found is None:
            found = self._turns[end_ms] = BitMap64()
            self.oldest_ms = end_ms if self.oldest_ms is None else min(self.oldest_ms, end_ms)
        return found

    def take_due_by(self, time_ms: int, most: int) -> list[int]:
        """Remove and return the first messages of turns that were over by then."""
        taken: list[int] = []
        while self.oldest_ms is not None and self.oldest_ms <= time_ms and len(taken) < most:
            offsets = self._turns[self.oldest_ms]
            some = list(islice(offsets, most - len(taken)))
            offsets -= BitMap64(some)
            taken += some
            if not offsets:
                self._drop(self.oldest_ms)
        return taken

    def between(self, wanted: BitMap64) -> BitMap64:
        """Those of these messages that were sent with a delay and have become due."""
        found = BitMap64()
        for offsets in self._turns.values():
            found |= offsets & wanted
        return found

    def forget_before(self, offset: int) -> None:
        """All messages below are acked."""
        for end_ms, offsets in list(self._turns.items()):
            offsets.remove_range(0, offset)
            if not offsets:
                self._drop(end_ms)

    def _drop(self, end_ms: int) -> None:
        del self._turns[end_ms]
        self.oldest_ms = min(self._turns, default=None)
