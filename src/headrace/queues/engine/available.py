"""The available messages of a queue, by priority. Pure.

Each priority level is a queue. A message that was never received has its place in it by its offset; one that came back
is placed behind all messages that were in it at that time. So while a message is available, no other message of its
level is received twice. A bitmap per level has the offsets of new messages, which costs next to nothing for millions;
the few that came back are listed in the order of their return.

Without ageing a level is served only while all higher ones are empty. With it, a message counts one level higher for
every `ageing_ms` since it was sent or came back, up to the highest, and among equal levels the first in line is served:
every message is received in the end, whatever is sent later.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from pyroaring import BitMap64

from headrace.model.queued import HIGHEST_PRIORITY, LOWEST_PRIORITY, NORMAL_PRIORITY
from headrace.queues.engine.levels import MessageLevels
from headrace.queues.engine.send_times import SendTimes

_LEVELS = HIGHEST_PRIORITY + 1
_DOWNWARDS = range(HIGHEST_PRIORITY, LOWEST_PRIORITY - 1, -1)
_AT_ONCE = 64


class _Standing(NamedTuple):
    """The place in line of a message that came back."""

    position: int
    """It comes after new messages with a lower offset, and before the others."""
    turn: int
    """The order of returns: a rising number."""
    since_ms: int


class AvailableMessages:
    def __init__(self, ages: SendTimes, ageing_ms: int) -> None:
        self._ages = ages
        self.ageing_ms = ageing_ms
        self._available = [BitMap64() for _ in range(_LEVELS)]
        """New messages by level."""
        self._returned: dict[int, OrderedDict[int, _Standing]] = {}
        """Returned messages by level, in the order of their return."""
        self._turns = 0
        self._levels = MessageLevels()
        """Of all messages that are not acked, available or not."""

    # -- priorities

    def set_level(self, offset: int, level: int) -> None:
        """Set the level of a new message."""
        self._levels.set(offset, level)

    def set_levels(self, offsets: BitMap64, level: int) -> None:
        """Set the level of new messages."""
        self._levels.set_all(offsets, level)

    def level_of(self, offset: int) -> int:
        return self._levels.of(offset)

    # -- adding and removing

    def __bool__(self) -> bool:
        # Most messages have the normal priority.
        return bool(self._available[NORMAL_PRIORITY] or self._returned) or any(self._available)

    def put(self, offset: int) -> None:
        """Add a message at the place of its offset."""
        self._available[self.level_of(offset)].add(offset)

    def put_behind(self, offset: int, position: int, now_ms: int) -> None:
        """Add a message that came back, behind all offsets below `position` and all earlier returns."""
        self._turns += 1
        standing = _Standing(position, self._turns, now_ms)
        self._returned.setdefault(self.level_of(offset), OrderedDict())[offset] = standing

    def put_normal(self, first: int, last: int) -> None:
        self._available[NORMAL_PRIORITY].add_range(first, last + 1)

    def put_all(self, offsets: BitMap64) -> None:
        """`offsets` is used up."""
        for level, part in self._levels.parts(offsets):
            self._available[level] |= part

    def take_off(self, offset: int) -> None:
        self._take_off(offset, self.level_of(offset))

    def _take_off(self, offset: int, level: int) -> None:
        self._available[level].discard(offset)
        returned = self._returned.get(level)
        if returned is not None and returned.pop(offset, None) is not None and not returned:
            del self._returned[level]

    def forget(self, offset: int) -> None:
        """Remove an acked message."""
        self._take_off(offset, self._levels.forget(offset))

    def forget_range(self, first: int, last: int) -> None:
        for offsets in (*self._available, *self._levels.planes):
            offsets.remove_range(first, last + 1)
        inside = range(first, last + 1)
        for level, returned in list(self._returned.items()) if self._returned else ():
            for offset in _common(inside, returned):
                self._take_off(offset, level)

    def forget_all(self, gone: BitMap64) -> None:
        for offsets in (*self._available, *self._levels.planes):
            offsets -= gone
        for level, returned in list(self._returned.items()):
            for offset in [offset for offset in returned if offset in gone]:
                self._take_off(offset, level)

    # -- by offset, for queues without priorities

    def take_between(self, first: int, last: int, most: int) -> list[int]:
        """Remove and return the first new messages in this range."""
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

    def take_returned_between(self, first: int, last: int, most: int, before: int | None) -> list[int]:
        """Remove and return the first returned messages in this range that are in line before an offset; with None,
        anywhere in line."""
        returned = self._returned.get(NORMAL_PRIORITY)
        if not returned:
            return []
        candidates = _common(range(first, last + 1), returned)
        found = [offset for offset in candidates if self._stands(returned[offset], before)]
        found = sorted(found, key=lambda offset: returned[offset].turn)[:most]
        for offset in found:
            self._take_off(offset, NORMAL_PRIORITY)
        return found

    @staticmethod
    def _stands(standing: _Standing, before: int | None) -> bool:
        return before is None or standing.position <= before

    def first(self) -> int | None:
        """The first new message."""
        offsets = self._available[NORMAL_PRIORITY]
        return offsets.min() if offsets else None

    def first_returned(self, before: int | None) -> int | None:
        """The first returned message, if it is in line before an offset; with None, anywhere in line."""
        returned = self._returned.get(NORMAL_PRIORITY)
        if not returned:
            return None
        offset, standing = next(iter(returned.items()))
        return offset if self._stands(standing, before) else None

    # -- receive order

    def order(self, now_ms: int, wanted: int) -> Iterator[int]:
        """The offsets in receive order. Each is removed as it is yielded."""
        while True:
            level = self._next_level(now_ms)
            if level is None:
                return
            returned = self._returned.get(level)
            if returned is not None and self._is_returned_first(level):
                offset = next(iter(returned))
                self._take_off(offset, level)
                yield offset
                continue
            offsets = self._available[level]
            most = 1 if self.ageing_ms and len(self._filled) > 1 else min(wanted, _AT_ONCE)
            end = next(iter(returned.values())).position if returned else None
            for offset in list(islice(offsets, most)):
                if end is not None and offset >= end:
                    break
                offsets.discard(offset)
                yield offset

    def take_run(self, now_ms: int, wanted: int) -> tuple[int, int] | None:
        """Remove the first messages in receive order as far as they are neighbours: first and last of them. None if
        they are to be taken one by one, with `order`, or if there are none."""
        filled = self._filled
        if not filled or (self.ageing_ms and len(filled) > 1):
            return None
        level = filled[0]
        if self._is_returned_first(level):
            return None
        offsets, returned = self._available[level], self._returned.get(level)
        first = offsets.min()
        last = first + wanted - 1
        if returned:
            last = min(last, next(iter(returned.values())).position - 1)
        if not offsets.contains_range(first, last + 1):
            sure, last = first, last - 1
            while sure < last:
                middle = (sure + last + 1) // 2
                if offsets.contains_range(first, middle + 1):
                    sure = middle
                else:
                    last = middle - 1
        offsets.remove_range(first, last + 1)
        return first, last

    def _is_returned_first(self, level: int) -> bool:
        returned, offsets = self._returned.get(level), self._available[level]
        return returned is not None and (not offsets or next(iter(returned.values())).position <= offsets.min())

    @property
    def _filled(self) -> list[int]:
        """The levels that are not empty, the highest first."""
        available, returned = self._available, self._returned
        return [level for level in _DOWNWARDS if available[level] or level in returned]

    def _next_level(self, now_ms: int) -> int | None:
        filled = self._filled
        if not filled:
            return None
        if not self.ageing_ms or len(filled) == 1:
            return filled[0]
        return min(filled, key=lambda level: self._rank(level, now_ms))

    def _rank(self, level: int, now_ms: int) -> tuple[int, int]:
        if self._is_returned_first(level):
            position, _, since_ms = next(iter(self._returned[level].values()))
        else:
            position = self._available[level].min()
            since_ms = self._ages.sent_ms(position)
        aged = level + max(0, now_ms - since_ms) // self.ageing_ms
        return -min(aged, HIGHEST_PRIORITY), position


def _common(inside: range, returned: OrderedDict[int, _Standing]) -> list[int]:
    """The offsets in both, found by iterating over the shorter one."""
    if len(inside) < len(returned):
        return [offset for offset in inside if offset in returned]
    return [offset for offset in returned if offset in inside]
