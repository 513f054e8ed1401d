"""Messages that were sent to be received later, by when they were due: their retention counts from then. Pure.

Those that were due within one turn, a sixty-fourth of the retention, share a bitmap, and go when the last of them is
too old. Messages that are done stay in it until everything before them is done, too: whoever asks passes over them.
"""

from itertools import islice

from pyroaring import BitMap64

_TURNS = 64
_SHORTEST_MS = 1000


def turn_ms(retention_ms: int) -> int:
    """By how much such a message may be gone too late."""
    return max(retention_ms // _TURNS, _SHORTEST_MS)


class DelayedRetention:
    def __init__(self, retention_ms: int) -> None:
        self.turn_ms = turn_ms(retention_ms)
        self._turns: dict[int, BitMap64] = {}
        """By their end."""
        self.oldest_ms: int | None = None
        """The end of the first turn."""

    def __bool__(self) -> bool:
        return bool(self._turns)

    def end_of(self, due_ms: int) -> int:
        """When the turn ends in which something was due."""
        return (due_ms // self.turn_ms + 1) * self.turn_ms

    def add(self, first: int, last: int, due_ms: int) -> None:
        self._of(self.end_of(due_ms)).add_range(first, last + 1)

    def add_all(self, offsets: BitMap64, end_ms: int) -> None:
        """All of a turn that ends then."""
        self._of(end_ms).update(offsets)

    def _of(self, end_ms: int) -> BitMap64:
        found = self._turns.get(end_ms)
        if found is None:
            found = self._turns[end_ms] = BitMap64()
            self.oldest_ms = end_ms if self.oldest_ms is None else min(self.oldest_ms, end_ms)
        return found

    def take_due_by(self, time_ms: int, most: int) -> list[int]:
        """The first of those whose turn was over by then: they are forgotten here."""
        taken: list[int] = []
        while self.oldest_ms is not None and self.oldest_ms <= time_ms and len(taken) < most:
            offsets = self._turns[self.oldest_ms]
            some = list(islice(offsets, most - len(taken)))
            offsets -= BitMap64(some)
            taken += some
            if not offsets:
                self._drop(self.oldest_ms)
        return taken

    def between(self, meant: BitMap64) -> BitMap64:
        """Those of these that are here."""
        found = BitMap64()
        for offsets in self._turns.values():
            found |= offsets & meant
        return found

    def forget_before(self, offset: int) -> None:
        """Everything below is done."""
        for end_ms, offsets in list(self._turns.items()):
            offsets.remove_range(0, offset)
            if not offsets:
                self._drop(end_ms)

    def _drop(self, end_ms: int) -> None:
        del self._turns[end_ms]
        self.oldest_ms = min(self._turns, default=None)
