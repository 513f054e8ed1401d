"""The order within message groups. Pure.

A group has its messages by offset, including those in flight or hidden. A message may be received if no earlier message
of the group is in flight or hidden: so none overtakes a message that came back or is delayed, and one that came back
does not wait for later ones in flight. Among the available messages a group is represented by its first message that is
not acked; a receive may include the ones behind it. A message costs four bytes, a group about 400.
"""

from array import array
from collections.abc import Callable, Iterator

from headrace.model.invariants import invariant
from headrace.queues.engine.available import AvailableMessages

_MOST = 0xFFFF_FFFF


class _Offsets:
    """Rising offsets, added at the end and removed at the start: four bytes each, or eight if they are far apart."""

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


class MessageGroup:
    __slots__ = ("name", "offsets")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.offsets = _Offsets()


class MessageGroups:
    def __init__(
        self,
        available: AvailableMessages,
        *,
        is_gone: Callable[[int], bool],
        is_blocked: Callable[[int], bool],
        make_available: Callable[[int], None],
    ) -> None:
        """`is_gone`: acked or dead. `is_blocked`: in flight or hidden."""
        self._available = available
        self._is_gone = is_gone
        self._is_blocked = is_blocked
        self._make_available = make_available
        self._groups: dict[bytes, MessageGroup] = {}
        self._by_front: dict[int, MessageGroup] = {}
        """Each group by its first message that is not gone, available or blocked."""

    def add(self, offset: int, name: bytes) -> None:
        """The next message of the log, blocked or not."""
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = MessageGroup(name)
            group.offsets.append(offset)
            self._show_front(group)
        else:
            group.offsets.append(offset)

    def _show_front(self, group: MessageGroup) -> None:
        """Find the first message of a group that is not gone, and make it available unless it is blocked."""
        offsets = group.offsets
        front = offsets.first()
        while front is not None and self._is_gone(front):
            offsets.drop_first()
            front = offsets.first()
        if front is None:
            del self._groups[group.name]
            return
        self._by_front[front] = group
        if not self._is_blocked(front):
            self._make_available(front)

    def take(self, front: int) -> Iterator[int]:
        """The messages that may be received together, in order: `front`, which was available, and those behind it up to
        one that is blocked."""
        invariant(front in self._by_front, 55, "only the first message of a group is available")
        for offset in self._by_front[front].offsets:
            if not self._is_gone(offset):
                if self._is_blocked(offset):
                    return
                yield offset

    def receivable(self, name: bytes, last: int) -> Iterator[int]:
        """The messages of a group that may be received, up to this offset."""
        group = self._groups.get(name)
        for offset in group.offsets if group is not None else ():
            if offset > last:
                return
            if not self._is_gone(offset):
                if self._is_blocked(offset):
                    return
                yield offset

    def unblocked(self, offset: int) -> None:
        """A message is not in flight any more, or not hidden."""
        if offset in self._by_front and not self._is_blocked(offset):
            self._make_available(offset)

    def gone(self, offset: int) -> None:
        """A message is acked or dead."""
        group = self._by_front.pop(offset, None)
        if group is not None:
            self._available.take_off(offset)
            self._show_front(group)

    def gone_up_to(self, last: int) -> None:
        """Many messages up to this offset are acked."""
        for front in sorted(front for front in self._by_front if front <= last and self._is_gone(front)):
            self.gone(front)
