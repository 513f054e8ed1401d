"""Committed offsets of groups, and pending offsets of open transactions. Pure.

They change only by replaying records. An offset in a transaction takes effect when the transaction commits, unless a
later offset was written for the same partition.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from headrace.groups.records import OffsetKey, OffsetValue


class _Stored(NamedTuple):
    value: OffsetValue
    order: int
    """Its position in the order of replay."""


Place = tuple[str, int]
"""Topic and partition."""


class Committer(NamedTuple):
    """The member id and the generation or member epoch of a request; -1 and no id if it is not by a member."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class OffsetCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, dict[Place, _Stored]] = {}
        self._pending: dict[int, dict[OffsetKey, _Stored]] = {}
        self._unstable: Counter[OffsetKey] = Counter()
        self._order = count()

    # -- lookup

    def get(self, group: str, topic: str, partition: int) -> OffsetValue | None:
        stored = self._committed.get(group, {}).get((topic, partition))
        return None if stored is None else stored.value

    def of_group(self, group: str) -> Iterator[tuple[Place, OffsetValue]]:
        for place, stored in self._committed.get(group, {}).items():
            yield place, stored.value

    def has_any(self, group: str) -> bool:
        """Whether the group has an offset, or a pending one in an open transaction."""
        return group in self._committed or any(key.group == group for key in self._unstable)

    def is_unstable(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change this offset."""
        return OffsetKey(group, topic, partition) in self._unstable

    def keys_of(self, group: str) -> Iterator[OffsetKey]:
        """Yield the keys of all offsets of a group, including those of open transactions."""
        keys = [OffsetKey(group, *place) for place in self._committed.get(group, ())]
        yield from dict.fromkeys(keys + [key for key in self._unstable if key.group == group])

    def keys_in_topics(self, topics: Mapping[str, object]) -> Iterator[OffsetKey]:
        for group, offsets in self._committed.items():
            for topic, partition in offsets:
                if topic in topics:
                    yield OffsetKey(group, topic, partition)

    # -- replaying

    def replay(self, key: OffsetKey, value: OffsetValue | None, producer_id: int) -> None:
        if value is None:
            self._forget(key)
        elif producer_id < 0:
            self._commit(key, _Stored(value, next(self._order)))
        else:
            pending = self._pending.setdefault(producer_id, {})
            if key not in pending:
                self._unstable[key] += 1
            pending[key] = _Stored(value, next(self._order))

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        for key, stored in self._pending.pop(producer_id, {}).items():
            self._settle(key)
            if committed:
                now = self._committed.get(key.group, {}).get((key.topic, key.partition))
                if now is None or now.order < stored.order:
                    self._commit(key, stored)

    def _commit(self, key: OffsetKey, stored: _Stored) -> None:
        self._committed.setdefault(key.group, {})[key.topic, key.partition] = stored

    def _forget(self, key: OffsetKey) -> None:
        offsets = self._committed.get(key.group)
        if offsets is not None:
            offsets.pop((key.topic, key.partition), None)
            if not offsets:
                del self._committed[key.group]
        if key in self._unstable:
            for pending in self._pending.values():
                if pending.pop(key, None) is not None:
                    self._settle(key)

    def _settle(self, key: OffsetKey) -> None:
        self._unstable[key] -= 1
        if not self._unstable[key]:
            del self._unstable[key]
