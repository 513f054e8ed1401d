"""Messages that were received and are not acked: leased to their receiver, or returned. Pure.

One heap has the deadline of each: the end of its lease, or of its time hidden. An item stays when a message is acked
or its deadline changes; stale items are skipped, and the heap is rebuilt when most of it is stale.

Many neighbours that are received together for the first time are a group: one deadline, and a bitmap of those that are
still in it. A message leaves its group when anything but an acknowledgement happens to it, and has a record of its own
from then on.

Persisting: messages that are received together for the first time share one entry, since most are acked before anything
else happens to them. Any other event gives a message an entry of its own. If leases do not survive a restart, attempts
still do: an entry then has neither the deadline nor the receiver.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from pyroaring import BitMap64

from headrace.coordinator.machine import InternalRecord
from headrace.model.invariants import invariant
from headrace.queues.engine.lease_groups import LeaseGroup, LeaseGroups
from headrace.queues.engine.stored import HELD, LEASE, LeaseRecord, LeaseValue, entry, tombstone

_SLACK = 1024
GROUP_FROM = 16
"""So many neighbours are leased as a group."""


class Leases:
    def __init__(self, *, survive: bool) -> None:
        self._survive = survive
        """Whether a lease outlasts a restart. If not, only the attempt is persisted."""
        self.held: dict[int, LeaseRecord] = {}
        """The messages that are not in a group; `get` finds those, too."""
        self.groups = LeaseGroups()
        self.group_from = GROUP_FROM
        self.leased = 0
        self.hidden = 0
        """How many messages were returned and are not available yet."""
        self._hidden = BitMap64()
        self._heap: list[tuple[int, int]] = []
        self._dirty: set[int] = set()
        self._stored = BitMap64()
        self._together: dict[int, LeaseGroup] = {}
        """For each message that shares an entry, or will."""
        self._to_store: list[LeaseGroup] = []
        self._over: list[int] = []
        """Keys of entries that no message shares any more."""

    # -- leasing and returning

    def lease(self, offset: int, now_ms: int, until_ms: int, receiver: str) -> LeaseRecord:
        """Lease an available message."""
        held = self.held.get(offset)
        if held is None:
            held = self.held[offset] = LeaseRecord(1, True, until_ms, now_ms, now_ms, "", receiver)
            self._share(offset, until_ms, now_ms, receiver)
        else:
            invariant(not held.is_leased and not self.is_hidden(offset), 52, "a message has one lease at a time")
            held.attempt += 1
            held.is_leased, held.until_ms, held.received_ms, held.receiver = True, until_ms, now_ms, receiver
            self._persist_alone(offset)
        self.leased += 1
        self._push(offset, until_ms)
        return held

    def lease_run(self, first: int, last: int, now_ms: int, until_ms: int, receiver: str) -> None:
        """Lease available neighbours that were never received."""
        if last - first + 1 < self.group_from:
            for offset in range(first, last + 1):
                self.lease(offset, now_ms, until_ms, receiver)
            return
        run = range(first, last + 1)
        invariant(
            (not self.held or self.held.keys().isdisjoint(run)) and not self.groups.count(first, last),
            52,
            "a message has one lease at a time",
        )
        group = LeaseGroup(until_ms, now_ms, receiver)
        group.offsets, group.left = run, len(run)
        self.groups.add(group, first, last)
        self._to_store.append(group)
        self.leased += len(run)

    def get(self, offset: int) -> LeaseRecord | None:
        """The record of a message that was received; one in a group leaves it."""
        held = self.held.get(offset)
        if held is None and self.groups:
            group = self.groups.remove(offset)
            if group is not None:
                held = self.held[offset] = group.record()
                self._together[offset] = group
                self._push(offset, group.until_ms)
        return held

    def seen(self, offset: int) -> LeaseRecord | None:
        """Like `get`, for reading only: the message stays in its group."""
        held = self.held.get(offset)
        group = self.groups.of(offset) if held is None and self.groups else None
        return held if group is None else group.record()

    def is_leased(self, offset: int) -> bool:
        held = self.held.get(offset)
        return offset in self.groups if held is None else held.is_leased

    def offsets(self) -> Iterator[int]:
        """All messages that were received and are not acked."""
        yield from self.held
        yield from self.groups

    def extend(self, offset: int, held: LeaseRecord, until_ms: int) -> None:
        held.until_ms = until_ms
        self._push(offset, until_ms)
        if self._survive:
            self._persist_alone(offset)

    def lease_again(self, offset: int, held: LeaseRecord, until_ms: int) -> None:
        """Renew a lease that was over. It counts as the same receive."""
        self._leave(offset, held)
        held.is_leased, held.until_ms = True, until_ms
        self.leased += 1
        self._push(offset, until_ms)
        self._persist_alone(offset)

    def end(self, offset: int, held: LeaseRecord, until_ms: int, reason: str, *, is_hidden: bool) -> None:
        """End a lease: the message is hidden until then, or available (or dead) from now on."""
        held.is_leased, held.until_ms, held.reason = False, until_ms, reason
        self.leased -= 1
        if is_hidden:
            self.hide(offset, held, until_ms)
        self._persist_alone(offset)

    def hide(self, offset: int, held: LeaseRecord, until_ms: int) -> None:
        """Hide a message that is not leased until then."""
        held.until_ms = until_ms
        self.hidden += 1
        self._hidden.add(offset)
        self._push(offset, until_ms)

    def is_hidden(self, offset: int) -> bool:
        return self.hidden > 0 and offset in self._hidden

    def forget(self, offset: int) -> LeaseRecord | None:
        """Remove an acked message."""
        held = self.get(offset)
        if held is not None:
            del self.held[offset]
            self._leave(offset, held)
            if not self._share_no_more(offset):
                self._dirty.add(offset)
        return held

    def forget_run(self, first: int, last: int) -> None:
        """Remove acked neighbours."""
        for group, count in self.groups.remove_run(first, last):
            self.leased -= count
            self._left(group, count)
        held, run = self.held, range(first, last + 1)
        if held:
            inside = [each for each in held if each in run] if len(held) < len(run) else [o for o in run if o in held]
            for offset in inside:
                self.forget(offset)

    def _leave(self, offset: int, held: LeaseRecord) -> None:
        if held.is_leased:
            self.leased -= 1
        elif self.is_hidden(offset):
            self.hidden -= 1
            self._hidden.discard(offset)

    # -- time

    def _push(self, offset: int, until_ms: int) -> None:
        heap = self._heap
        if len(heap) > 2 * len(self.held) + _SLACK:
            self._heap = heap = [
                (held.until_ms, other)
                for other, held in self.held.items()
                if other != offset and (held.is_leased or self.is_hidden(other))
            ]
            heapify(heap)
        heappush(heap, (until_ms, offset))

    def _is_meant(self, offset: int, until_ms: int) -> bool:
        held = self.held.get(offset)
        return held is not None and held.until_ms == until_ms and (held.is_leased or self.is_hidden(offset))

    @property
    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and not self._is_meant(heap[0][1], heap[0][0]):
            heappop(heap)
        group_ms = self.groups.next_ms
        if not heap:
            return group_ms
        return heap[0][0] if group_ms is None else min(group_ms, heap[0][0])

    def due(self, now_ms: int) -> Iterator[tuple[int, LeaseRecord, bool]]:
        """Messages whose lease (True) or time hidden (False) has ended: they are neither leased nor hidden any more."""
        for offset in self.groups.due(now_ms):
            self.get(offset)
        # The caller may hide a message again, which may rebuild the heap.
        while self._heap and self._heap[0][0] <= now_ms:
            until_ms, offset = heappop(self._heap)
            if self._is_meant(offset, until_ms):
                held = self.held[offset]
                self._leave(offset, held)
                was_leased, held.is_leased = held.is_leased, False
                if was_leased and not self._survive:
                    self._persist_alone(offset)
                yield offset, held, was_leased

    # -- persisting

    def _share(self, offset: int, until_ms: int, received_ms: int, receiver: str) -> None:
        """Persist a message in one entry with those that were received with it."""
        waiting = self._to_store
        if not waiting or not waiting[-1].takes(until_ms, received_ms, receiver):
            waiting.append(LeaseGroup(until_ms, received_ms, receiver))
        together = self._together[offset] = waiting[-1]
        together.take(offset)

    def _share_no_more(self, offset: int) -> bool:
        """Whether it shared an entry."""
        together = self._together.pop(offset, None)
        if together is None:
            return False
        self._left(together, 1)
        return True

    def _left(self, together: LeaseGroup, count: int) -> None:
        """So many messages do not share an entry any more."""
        together.left -= count
        if not together.left and together.key is not None:
            self._over.append(together.key)

    def _persist_alone(self, offset: int) -> None:
        self._share_no_more(offset)
        self._dirty.add(offset)

    def load(self, offset: int, held: LeaseRecord) -> None:
        self.held[offset] = held
        self._push(offset, held.until_ms)
        if held.is_leased:
            self.leased += 1
        else:
            self.hidden += 1
            self._hidden.add(offset)

    def mark_stored(self, offset: int, *, is_live: bool) -> None:
        """This message has an entry; if the message is acked, the entry is removed with the next changes."""
        self._stored.add(offset)
        if not is_live:
            self._dirty.add(offset)

    def mark_stored_together(self, key: int, live: Collection[int]) -> None:
        """These messages share an entry. If there are none, it is removed with the next changes."""
        if not live:
            self._over.append(key)
            return
        together = LeaseGroup(0, 0, "")
        together.key, together.left = key, len(live)
        self._together.update(dict.fromkeys(live, together))

    def take_held(self) -> list[InternalRecord]:
        entries = [self._entry(together) for together in self._to_store if together.left]
        self._to_store = []
        for offset in self._dirty:
            held = self._to_persist(offset)
            if held is not None:
                self._stored.add(offset)
                entries.append(entry(HELD, offset, held))
        return entries

    def _entry(self, together: LeaseGroup) -> InternalRecord:
        offsets: Sequence[int] = together.offsets
        together.offsets = ()
        if together.left < len(offsets):
            offsets = [each for each in offsets if each in together.members or self._together.get(each) is together]
        together.key = offsets[0]
        if isinstance(offsets, range):
            steps = [1] * (len(offsets) - 1)
        else:
            steps = [after - before for before, after in pairwise(offsets)]
        value = (
            LeaseValue(together.until_ms, together.received_ms, together.receiver, steps)
            if self._survive
            else LeaseValue(0, 0, "", steps)
        )
        return entry(LEASE, offsets[0], value)

    def _to_persist(self, offset: int) -> LeaseRecord | None:
        held = self.held.get(offset)
        if self._survive or held is None:
            return held
        return LeaseRecord(held.attempt, held.is_leased, 0, 0, 0, held.reason, excused=held.excused)

    def take_acked(self) -> list[InternalRecord]:
        """After `take_held`."""
        acked = [offset for offset in self._dirty if offset in self._stored and self._to_persist(offset) is None]
        for offset in acked:
            self._stored.discard(offset)
        self._dirty.clear()
        over, self._over = self._over, []
        return [*(tombstone(HELD, offset) for offset in acked), *(tombstone(LEASE, key) for key in over)]
