"""The order within message groups. Pure.

A group has its messages by offset, including those in flight or hidden. A message may be received if no earlier message
of the group is in flight or hidden: so none overtakes a message that came back or is delayed, and one that came back
does not wait for later ones in flight. Among the available messages a group is represented by its first message that is
not acked, its front; a receive may include the ones behind it.

A group is a number, and a row of arrays; it is found by the hash of its name. Two names with the same hash of 60 bits
are one group, which keeps the order of both. Its messages are a chain: each has the distance to the next one, in two to
four bytes, but the front has the number of its group. A group takes about 140 bytes.
"""

from array import array
from collections.abc import Callable, Iterator
from itertools import takewhile

from pyroaring import BitMap64

from headrace.model.invariants import invariant
from headrace.queues.engine.available import AvailableMessages
from headrace.queues.engine.offset_numbers import OffsetNumbers

_HASH = (1 << 60) - 1
"""Numbers of up to 60 bits take less memory than larger ones."""
_NONE = -1


class _Groups:
    """The rows of the groups. Those of groups that have ended are used again."""

    def __init__(self) -> None:
        self.by_hash: dict[int, int] = {}
        self._hashes = array("q")
        self.front = array("q")
        self.second = array("q")
        """The message behind the front; in a free row, the next free row."""
        self.last = array("q")
        self._free = _NONE

    def add(self, key: int, offset: int) -> int:
        """The row of a new group, with its first message."""
        group = self._free
        if group == _NONE:
            group = len(self._hashes)
            self._hashes.append(key)
            self.front.append(offset)
            self.second.append(_NONE)
            self.last.append(offset)
        else:
            self._free = self.second[group]
            self._hashes[group], self.front[group], self.second[group], self.last[group] = key, offset, _NONE, offset
        self.by_hash[key] = group
        return group

    def remove(self, group: int) -> None:
        del self.by_hash[self._hashes[group]]
        self.second[group] = self._free
        self._free = group


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
        self._groups = _Groups()
        self._fronts = BitMap64()
        """Of each group the first message that is not gone, available or blocked."""
        self._links = OffsetNumbers()
        """Of a front its group; of a message behind it the distance to the next one, or 0."""

    def add(self, offset: int, name: bytes) -> None:
        """The next message of the log, blocked or not."""
        groups = self._groups
        key = hash(name) & _HASH
        group = groups.by_hash.get(key)
        if group is None:
            self._show_front(groups.add(key, offset), offset)
            return
        last = groups.last[group]
        groups.last[group] = offset
        if last == groups.front[group]:
            groups.second[group] = offset
        else:
            self._links[last] = offset - last

    def _behind(self, offset: int) -> int:
        """The next message of the group of one that is not the front."""
        distance = self._links[offset]
        return offset + distance if distance else _NONE

    def _show_front(self, group: int, first: int) -> None:
        """Find the first message of a group, from this one on, that is not gone, and make it available unless it is
        blocked."""
        front = first
        while front != _NONE and self._is_gone(front):
            front = self._behind(front)
        groups = self._groups
        if front == _NONE:
            groups.remove(group)
            if not groups.by_hash:
                self._groups = _Groups()  # Frees the rows.
            return
        groups.front[group], groups.second[group] = front, self._behind(front)
        self._links[front] = group
        self._fronts.add(front)
        if not self._is_blocked(front):
            self._make_available(front)

    def take(self, front: int) -> Iterator[int]:
        """The messages that may be received together, in order: `front`, which was available, and those behind it up to
        one that is blocked."""
        invariant(front in self._fronts, 55, "only the first message of a group is available")
        return self._receivable(self._links[front])

    def receivable(self, name: bytes, last: int) -> Iterator[int]:
        """The messages of a group that may be received, up to this offset."""
        group = self._groups.by_hash.get(hash(name) & _HASH)
        return iter(()) if group is None else takewhile(lambda offset: offset <= last, self._receivable(group))

    def _receivable(self, group: int) -> Iterator[int]:
        offset = self._groups.front[group]
        following = self._groups.second[group]
        while True:
            if not self._is_gone(offset):
                if self._is_blocked(offset):
                    return
                yield offset
            if following == _NONE:
                return
            offset, following = following, self._behind(following)

    def unblocked(self, offset: int) -> None:
        """A message is not in flight any more, or not hidden."""
        if offset in self._fronts and not self._is_blocked(offset):
            self._make_available(offset)

    def gone(self, offset: int) -> None:
        """A message is acked or dead."""
        if offset in self._fronts:
            self._fronts.discard(offset)
            self._available.take_off(offset)
            group = self._links[offset]
            self._show_front(group, self._groups.second[group])

    def gone_up_to(self, last: int) -> None:
        """Many messages up to this offset are acked."""
        for front in [each for each in takewhile(lambda each: each <= last, self._fronts) if self._is_gone(each)]:
            self.gone(front)

    def forget_before(self, offset: int) -> None:
        """Free the memory of messages that are acked, as all below this offset are."""
        self._links.forget_before(offset)
