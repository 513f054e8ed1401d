"""Messages that may be received now, by priority. Pure.

One bitmap of offsets per level, and one that remembers the level of every message that has another than the normal one,
available or not. Within a level the lowest offset is first. Without ageing a level gives nothing while a higher one has
anything. With it, a message counts as one level more for every `ageing_ms` since it was sent, up to the highest, and of
those that count the same the lowest offset is first: whatever is sent later, each comes to be first in the end.
"""

from collections.abc import Iterator
from itertools import islice

from pyroaring import BitMap64

from headrace.model.queued import HIGHEST_PRIORITY, LOWEST_PRIORITY, NORMAL_PRIORITY
from headrace.queues.ages import Ages

_LEVELS = HIGHEST_PRIORITY + 1
_AT_ONCE = 64


class Shelf:
    def __init__(self, ages: Ages, ageing_ms: int) -> None:
        self._ages = ages
        self.ageing_ms = ageing_ms
        self._available = [BitMap64() for _ in range(_LEVELS)]
        self._of_level: dict[int, BitMap64] = {}

    # -- priorities

    def set_level(self, offset: int, level: int) -> None:
        """Of a new message."""
        if level != NORMAL_PRIORITY:
            self._members(level).add(offset)

    def set_levels(self, offsets: BitMap64, level: int) -> None:
        self._members(level).update(offsets)

    def _members(self, level: int) -> BitMap64:
        found = self._of_level.get(level)
        if found is None:
            found = self._of_level[level] = BitMap64()
        return found

    def level_of(self, offset: int) -> int:
        for level, members in self._of_level.items():
            if offset in members:
                return level
        return NORMAL_PRIORITY

    # -- what is there

    def __contains__(self, offset: int) -> bool:
        return offset in self._available[self.level_of(offset)]

    def __bool__(self) -> bool:
        return any(self._available)

    def put(self, offset: int) -> None:
        self._available[self.level_of(offset)].add(offset)

    def put_normal(self, first: int, last: int) -> None:
        self._available[NORMAL_PRIORITY].add_range(first, last + 1)

    def put_all(self, offsets: BitMap64) -> None:
        """`offsets` is used up."""
        for level, members in self._of_level.items():
            part = offsets & members
            if part:
                self._available[level] |= part
                offsets -= part
        self._available[NORMAL_PRIORITY] |= offsets

    def take_off(self, offset: int) -> None:
        self._available[self.level_of(offset)].discard(offset)

    def forget(self, offset: int) -> None:
        """It is done."""
        for level, members in self._of_level.items():
            if offset in members:
                members.discard(offset)
                self._available[level].discard(offset)
                return
        self._available[NORMAL_PRIORITY].discard(offset)

    def forget_range(self, first: int, last: int) -> None:
        for offsets in (*self._available, *self._of_level.values()):
            offsets.remove_range(first, last + 1)

    def forget_all(self, gone: BitMap64) -> None:
        for offsets in (*self._available, *self._of_level.values()):
            offsets -= gone

    def take_between(self, first: int, last: int, most: int) -> list[int]:
        """Of those of normal priority: the first in this range, taken off."""
        offsets = self._available[NORMAL_PRIORITY]
        found = []
        for offset in islice(offsets.iter_equal_or_larger(first), most):
            if offset > last:
                break
            found.append(offset)
        if found and found[-1] - found[0] + 1 == len(found):
            offsets.remove_range(found[0], found[-1] + 1)
        else:
            offsets -= BitMap64(found)
        return found

    def next_from(self, first: int) -> int | None:
        """Of those of normal priority: the next."""
        return next(iter(self._available[NORMAL_PRIORITY].iter_equal_or_larger(first)), None)

    # -- in which order

    def order(self, now_ms: int, wanted: int) -> Iterator[int]:
        """The offsets in the order in which they are to be received. Each is taken off as it is given out."""
        while True:
            level = self._next_level(now_ms)
            if level is None:
                return
            offsets = self._available[level]
            if self.ageing_ms and self._is_mixed:
                first = offsets.min()
                offsets.discard(first)
                yield first
                continue
            found = list(islice(offsets, min(wanted, _AT_ONCE)))
            for offset in found:
                offsets.discard(offset)
                yield offset

    @property
    def _is_mixed(self) -> bool:
        return sum(map(bool, self._available)) > 1

    def _next_level(self, now_ms: int) -> int | None:
        filled = [level for level in range(HIGHEST_PRIORITY, LOWEST_PRIORITY - 1, -1) if self._available[level]]
        if not filled:
            return None
        if not self.ageing_ms or len(filled) == 1:
            return filled[0]
        return min(filled, key=lambda level: self._rank(level, now_ms))

    def _rank(self, level: int, now_ms: int) -> tuple[int, int]:
        first = self._available[level].min()
        aged = level + max(0, now_ms - self._ages.sent_ms(first)) // self.ageing_ms
        return -min(aged, HIGHEST_PRIORITY), first
