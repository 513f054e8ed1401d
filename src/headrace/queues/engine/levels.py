"""The priority levels of millions of messages. Pure.

The levels in use are numbered as they come, the normal one 0, and each bit of the numbers is a bitmap of messages: nine
other levels take four bitmaps, and one takes one.
"""

from collections.abc import Iterator

from pyroaring import BitMap64

from headrace.model.queued import NORMAL_PRIORITY


class MessageLevels:
    def __init__(self) -> None:
        self.planes: list[BitMap64] = []
        """A bitmap for each bit of the numbers, the lowest first. What is removed from all of them is forgotten."""
        self._levels = [NORMAL_PRIORITY]
        """By number."""
        self._planes_by_level: dict[int, list[BitMap64]] = {NORMAL_PRIORITY: []}

    def set(self, offset: int, level: int) -> None:
        """Set the level of a new message."""
        for plane in self._planes_of(level):
            plane.add(offset)

    def set_all(self, offsets: BitMap64, level: int) -> None:
        """Set the level of new messages."""
        for plane in self._planes_of(level):
            plane |= offsets

    def _planes_of(self, level: int) -> list[BitMap64]:
        found = self._planes_by_level.get(level)
        if found is None:
            number = len(self._levels)
            self._levels.append(level)
            while len(self.planes) < number.bit_length():
                self.planes.append(BitMap64())
            found = [plane for bit, plane in enumerate(self.planes) if number >> bit & 1]
            self._planes_by_level[level] = found
        return found

    def of(self, offset: int) -> int:
        if not self.planes:
            return NORMAL_PRIORITY
        number = 0
        for bit, plane in enumerate(self.planes):
            if offset in plane:
                number |= 1 << bit
        return self._levels[number]

    def forget(self, offset: int) -> int:
        """Forget the level of a message; what it was."""
        level = self.of(offset)
        if level != NORMAL_PRIORITY:
            for plane in self.planes:
                plane.discard(offset)
        return level

    def parts(self, offsets: BitMap64) -> Iterator[tuple[int, BitMap64]]:
        """The messages of each level among these."""
        parts = [(0, offsets)]
        for bit, plane in enumerate(self.planes):
            halves = []
            for number, part in parts:
                ones = part & plane
                if ones:
                    halves.append((number | 1 << bit, ones))
                    part = part - ones
                if part:
                    halves.append((number, part))
            parts = halves
        for number, part in parts:
            yield self._levels[number], part
