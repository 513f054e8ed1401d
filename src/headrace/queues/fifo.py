"""The order within message groups. Pure.

A group has its messages in the order of their offsets, also those that are in flight or hidden. Its first one that is
not done is on the shelf, and may be received, if nothing of the group is in flight and this one is not hidden: so
nothing overtakes what was returned or is delayed. A receive may take the ones behind it with it, up to one that is
hidden. A message costs four bytes, a group some 400.
"""

from array import array
from collections.abc import Callable, Iterator

from headrace.queues.shelf import Shelf

_MOST = 0xFFFF_FFFF


class _Offsets:
    """Rising offsets, added at the end and taken at the beginning: four bytes each, or eight if they lie far apart."""

    __slots__ = ("_base", "_passed", "_values")

    def __init__(self) -> None:
        self._base = 0
        self._passed = 0
        self._values = array("I")

    def append(self, offset: int) -> None:
        values = self._values
        if self._passed == len(values):
            self._base, self._passed = offset, 0
            del values[:]
        elif offset - self._base > _MOST and values.typecode == "I":
            self._values = array("Q", values)
        self._values.append(offset - self._base)

    def first(self) -> int | None:
        return self._base + self._values[self._passed] if self._passed < len(self._values) else None

    def drop_first(self) -> None:
        self._passed += 1
        if self._passed > 64 and self._passed * 2 > len(self._values):
            del self._values[: self._passed]
            self._passed = 0

    def __iter__(self) -> Iterator[int]:
        for place in range(self._passed, len(self._values)):
            yield self._base + self._values[place]


class Group:
    __slots__ = ("front", "in_flight", "name", "offsets")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.offsets = _Offsets()
        self.in_flight = 0
        self.front = -1
        """The message for which this group is in `Groups._by_front`."""


class Groups:
    def __init__(self, shelf: Shelf, is_gone: Callable[[int], bool], is_hidden: Callable[[int], bool]) -> None:
        self._shelf = shelf
        self._is_gone = is_gone
        self._is_hidden = is_hidden
        self._groups: dict[bytes, Group] = {}
        self._by_front: dict[int, Group] = {}
        """Groups of which nothing is in flight, by their first message, whether on the shelf or hidden."""
        self._of_held: dict[int, Group] = {}
        """The group of every message that was received and is not done."""

    def add(self, offset: int, name: bytes) -> None:
        """A new message, hidden or not."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        group.offsets.append(offset)
        if group.front < 0 and not group.in_flight:
            self._show(group)

    def add_held(self, offset: int, name: bytes, *, is_leased: bool) -> None:
        """A message that was received before the queue was loaded."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        group.offsets.append(offset)
        self._of_held[offset] = group
        if is_leased:
            self._hide(group)
            group.in_flight += 1
        elif group.front < 0 and not group.in_flight:
            self._show(group)

    def _show(self, group: Group) -> None:
        """Put the first message of a group without anything in flight on the shelf, unless it is hidden."""
        offsets = group.offsets
        front = offsets.first()
        while front is not None and self._is_gone(front):
            offsets.drop_first()
            front = offsets.first()
        if front is None:
            del self._groups[group.name]
            return
        group.front = front
        self._by_front[front] = group
        if not self._is_hidden(front):
            self._shelf.put(front)

    def _hide(self, group: Group) -> None:
        if group.front >= 0:
            del self._by_front[group.front]
            self._shelf.take_off(group.front)
            group.front = -1

    def take(self, front: int) -> Iterator[int]:
        """The messages that may be received with `front`, which was on the shelf, and it first: in their order, up to
        one that is hidden. Each counts as in flight when it is given out."""
        group = self._by_front.pop(front)
        group.front = -1
        for offset in group.offsets:
            if not self._is_gone(offset):
                if self._is_hidden(offset):
                    return
                self._of_held[offset] = group
                group.in_flight += 1
                yield offset

    def is_free(self, name: bytes) -> bool:
        """Whether a receiver could get something of this group."""
        group = self._groups.get(name)
        return group is not None and not group.in_flight and not self._is_hidden(group.front)

    def hold(self, offset: int, name: bytes) -> None:
        """This one counts as in flight."""
        group = self._groups[name]
        self._hide(group)
        self._of_held[offset] = group
        group.in_flight += 1

    def returned(self, offset: int, *, was_received: bool = True) -> None:
        """A lease ended, and the message is there again, hidden or not."""
        group = self._of_held[offset] if was_received else self._of_held.pop(offset)
        group.in_flight -= 1
        if not group.in_flight and group.front < 0:
            self._show(group)

    def shown(self, offset: int) -> None:
        """A message is hidden no more."""
        if offset in self._by_front:
            self._shelf.put(offset)

    def gone(self, offset: int, *, was_leased: bool) -> None:
        """It is done, or dead."""
        group = self._of_held.pop(offset, None) or self._by_front.get(offset)
        if group is None:
            return
        if was_leased:
            group.in_flight -= 1
        if group.front == offset:
            self._hide(group)
        if not group.in_flight and group.front < 0:
            self._show(group)

    def gone_up_to(self, last: int) -> None:
        """Of those up to this offset, many are done that were not received."""
        for front in sorted(front for front in self._by_front if front <= last and self._is_gone(front)):
            self.gone(front, was_leased=False)
