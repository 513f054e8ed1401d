"""Groups of messages that were received together for the first time, and are leased. Pure.

A group is one object for many neighbours: its bitmap has those that nothing has happened to since. Groups are found by
the buckets of offsets that they began with, and are due in the order of one heap.
"""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from pyroaring import BitMap64

from headrace.queues.engine.stored import LeaseRecord

_BUCKET_BITS = 8
_SLACK = 64
_ENTRY_MOST = 256
_NONE = BitMap64()


class LeaseGroup:
    """Messages that were received together for the first time, and share a persisted entry."""

    __slots__ = ("first", "key", "last", "left", "members", "offsets", "received_ms", "receiver", "until_ms")

    def __init__(self, until_ms: int, received_ms: int, receiver: str) -> None:
        self.until_ms = until_ms
        self.received_ms = received_ms
        self.receiver = receiver
        self.offsets: Sequence[int] = ()
        """Until they are persisted."""
        self.left = 0
        """How many messages still share the entry."""
        self.key: int | None = None
        """The key of the entry, once there is one."""
        self.members = _NONE
        """Those without a record of their own. Not changed unless the group is one of `LeaseGroups`."""
        self.first, self.last = 0, -1

    def takes(self, until_ms: int, received_ms: int, receiver: str) -> bool:
        """Whether one more message, with a record of its own, may share the entry."""
        return (
            self.until_ms == until_ms
            and self.received_ms == received_ms
            and self.receiver == receiver
            and isinstance(self.offsets, list)
            and len(self.offsets) < _ENTRY_MOST
        )

    def take(self, offset: int) -> None:
        if not isinstance(self.offsets, list):
            self.offsets = []
        self.offsets.append(offset)
        self.left += 1

    def record(self) -> LeaseRecord:
        """The record of a message that leaves the group."""
        return LeaseRecord(1, True, self.until_ms, self.received_ms, self.received_ms, "", self.receiver)


class LeaseGroups:
    """The groups that have members."""

    def __init__(self) -> None:
        self._buckets: dict[int, list[LeaseGroup]] = {}
        self._heap: list[tuple[int, int, LeaseGroup]] = []
        self._added = 0
        self._live: dict[LeaseGroup, None] = {}

    def __bool__(self) -> bool:
        return bool(self._live)

    def __iter__(self) -> Iterator[int]:
        for group in list(self._live):
            yield from list(group.members)

    def __contains__(self, offset: int) -> bool:
        return bool(self._live) and self.of(offset) is not None

    def add(self, group: LeaseGroup, first: int, last: int) -> None:
        """A group of these neighbours."""
        group.first, group.last = first, last
        group.members = BitMap64()
        group.members.add_range(first, last + 1)
        for bucket in _buckets(first, last):
            self._buckets.setdefault(bucket, []).append(group)
        self._live[group] = None
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = [item for item in self._heap if item[2].members]
            heapify(self._heap)
        self._added += 1
        heappush(self._heap, (group.until_ms, self._added, group))

    def of(self, offset: int) -> LeaseGroup | None:
        """The group of a message."""
        for group in self._buckets.get(offset >> _BUCKET_BITS, ()):
            if offset in group.members:
                return group
        return None

    def _within(self, first: int, last: int) -> list[LeaseGroup]:
        """The groups that may have members among these offsets."""
        found: dict[LeaseGroup, None] = {}
        for bucket in _buckets(first, last):
            found.update(dict.fromkeys(self._buckets.get(bucket, ())))
        return list(found)

    def count(self, first: int, last: int) -> int:
        """How many of these messages are in a group."""
        if not self._live:
            return 0
        return sum(group.members.range_cardinality(first, last + 1) for group in self._within(first, last))

    def remove(self, offset: int) -> LeaseGroup | None:
        """Take a message out of its group, if it is in one."""
        group = self.of(offset)
        if group is not None:
            group.members.remove(offset)
            self._drop_if_empty(group)
        return group

    def remove_run(self, first: int, last: int) -> list[tuple[LeaseGroup, int]]:
        """Take neighbours out of their groups: each group, and how many left it."""
        removed: list[tuple[LeaseGroup, int]] = []
        for group in self._within(first, last) if self._live else ():
            before = len(group.members)
            group.members.remove_range(first, last + 1)
            count = before - len(group.members)
            if count:
                removed.append((group, count))
                self._drop_if_empty(group)
        return removed

    def _drop_if_empty(self, group: LeaseGroup) -> None:
        if group.members:
            return
        del self._live[group]
        for bucket in _buckets(group.first, group.last):
            groups = self._buckets[bucket]
            groups.remove(group)
            if not groups:
                del self._buckets[bucket]

    @property
    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and not heap[0][2].members:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now_ms: int) -> Iterator[int]:
        """The messages whose lease has ended. The caller takes each out of its group."""
        while self._heap and self._heap[0][0] <= now_ms:
            yield from list(heappop(self._heap)[2].members)


def _buckets(first: int, last: int) -> range:
    return range(first >> _BUCKET_BITS, (last >> _BUCKET_BITS) + 1)
