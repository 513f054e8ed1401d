"""The state of an engine as entries of `__queue_state`: the changes to persist, and how they are loaded again. Pure.

The order of the entries is such that any prefix of them, loaded, is a state that the queue could have been in
(invariant 53).
"""

from collections.abc import Iterable
from itertools import chain

from pyroaring import BitMap64

from headrace.coordinator.machine import InternalRecord
from headrace.model.invariants import invariant
from headrace.queues.engine.acked import bits_of, numbers_of
from headrace.queues.engine.chunk_index import levels_of, members_of
from headrace.queues.engine.indexer import Indexer
from headrace.queues.engine.inventory import Inventory
from headrace.queues.engine.packed_times import offsets_of, spans_of, time_of
from headrace.queues.engine.schedule import Schedule
from headrace.queues.engine.stored import (
    CHUNK,
    CHUNK_BITS,
    AckedValue,
    HeadValue,
    IdsValue,
    IndexValue,
    LeaseRecord,
    LeaseValue,
    PagesValue,
    TimesValue,
    decode,
    is_index,
    number_of,
)

_IN_CHUNK = CHUNK - 1


def take_changes(inventory: Inventory, indexer: Indexer) -> list[InternalRecord]:
    """The entries that have changed since the last call."""
    acked, leases, chunks, ids = inventory.acked, inventory.leases, indexer.chunks, indexer.dedupe_ids
    if inventory.policy.persist_index:
        chunks.roll()
    else:
        chunks.restart(inventory.indexed_to)
    if acked.is_head_dirty:
        ids.save_open()
    # Records below the head, or in an indexed chunk, are not read again: their ids and pages come before both. After a
    # purge a chunk does not cover the messages before it: the head comes before the index. The index of a chunk does
    # not say which of its records are acked, or no messages: the acked ones come before it. Tombstones come after the
    # entries that replace them.
    parts = (
        ids.take(chunks.open_chunk),
        indexer.pages.take(chunks.saved_to),
        acked.take_head(),
        acked.take_bits(),
        leases.take_held(),
        chunks.take(acked.head),
        acked.take_passed(),
        leases.take_acked(),
        chunks.take_passed(acked.head),
        ids.take_passed(),
    )
    return list(chain.from_iterable(parts))


def load(inventory: Inventory, indexer: Indexer, entries: Iterable[InternalRecord]) -> None:
    """Fill a new inventory and indexer from the live entries, in any order."""
    _Loading(inventory, indexer).load(entries)


class _Loading:
    def __init__(self, inventory: Inventory, indexer: Indexer) -> None:
        self._inventory = inventory
        self._indexer = indexer
        self._acked: dict[int, AckedValue] = {}
        self._held: dict[int, LeaseRecord] = {}
        self._leased: dict[int, LeaseValue] = {}
        self._chunks: dict[int, InternalRecord] = {}
        self._ids: dict[int, IdsValue] = {}
        self._pages: dict[int, PagesValue] = {}
        self._received: dict[int, LeaseRecord] = {}
        """Messages that were received and are not indexed yet."""

    def load(self, entries: Iterable[InternalRecord]) -> None:
        inventory, indexer = self._inventory, self._indexer
        self._decode(entries)
        self._load_acked()
        self._load_leases()
        known_to = max((max(self._acked, default=-1) + 1 << CHUNK_BITS) - 1, inventory.acked.head - 1)
        indexer.expect(self._received, known_to)
        self._load_chunks()
        indexer.dedupe_ids.load(self._ids.items(), inventory.indexed_to)
        indexer.pages.load(self._pages.items(), inventory.indexed_to)

    def _decode(self, entries: Iterable[InternalRecord]) -> None:
        for record in entries:
            if is_index(record):
                # Decoded one after another: together they may be larger than the queue's state.
                self._chunks[number_of(record)] = record
                continue
            _, number, value = decode(record)
            match value:
                case HeadValue():
                    self._inventory.acked.load_head(value)
                case AckedValue():
                    self._acked[number] = value
                case LeaseRecord():
                    self._held[number] = value
                case LeaseValue():
                    self._leased[number] = value
                case IdsValue():
                    self._ids[number] = value
                case PagesValue():
                    self._pages[number] = value

    def _load_acked(self) -> None:
        inventory = self._inventory
        inventory.indexed_to = inventory.acked.head
        for number, bits in self._acked.items():
            inventory.acked.load(number, bits)
        inventory.acked.loaded()

    def _load_leases(self) -> None:
        inventory = self._inventory
        for offset, one in self._held.items():
            is_live = offset not in inventory.acked
            inventory.leases.mark_stored(offset, is_live=is_live)
            if is_live:
                self._received[offset] = self._restored(one)
        for first, value in self._leased.items():
            live = {
                offset: self._restored(one)
                for offset, one in value.held(first)
                if offset not in self._held and offset not in inventory.acked
            }
            inventory.leases.mark_stored_together(first, live)
            self._received.update(live)

    def _restored(self, held: LeaseRecord) -> LeaseRecord:
        """A received message as it is after a restart."""
        if not self._inventory.policy.persist_leases:
            held.until_ms = 0  # By the clock of another process, which may be far ahead of ours.
            if held.is_leased:
                held.is_leased = False
                held.excused += 1
        return held

    # -- the index

    def _load_chunks(self) -> None:
        inventory, chunks = self._inventory, self._chunks
        received_in: dict[int, list[int]] = {}
        for offset in self._received:
            received_in.setdefault(offset >> CHUNK_BITS, []).append(offset)
        number = inventory.indexed_to >> CHUNK_BITS
        last = None
        while number in chunks:
            _, _, value = decode(chunks[number])
            assert isinstance(value, IndexValue)
            invariant(
                number << CHUNK_BITS <= value.end <= number + 1 << CHUNK_BITS, 53, "the index of a chunk ends in it"
            )
            if value.end > inventory.indexed_to:
                # Records behind the end of the index are read again.
                received = [offset for offset in received_in.get(number, ()) if offset < value.end]
                self._load_chunk(number, value, received)
                inventory.indexed_to = value.end
            last = (number, value)
            if value.end & _IN_CHUNK:
                break
            number += 1
        self._indexer.chunks.load(chunks, last, inventory.indexed_to)

    def _load_chunk(self, chunk: int, value: IndexValue, received: Iterable[int]) -> None:
        inventory = self._inventory
        base, first, acked = chunk << CHUNK_BITS, inventory.indexed_to, inventory.acked
        live = bits_of(first & _IN_CHUNK, value.end - 1 - base) & ~acked.bits(chunk)
        if acked.head > first:
            live &= ~bits_of(0, min(acked.head, value.end) - 1 - base)
        inventory.unacked += live.bit_count()
        for last, sent_ms in value.ages:
            inventory.send_times.add(base + last, sent_ms)
        for level, bits in levels_of(value):
            inventory.available.set_levels(BitMap64([base + number for number in numbers_of(bits & live)]), level)
        _load_times(inventory.expiries, chunk, value.end, value.expiring)
        _load_times(inventory.delays, chunk, value.end, value.delayed)
        fresh = BitMap64()
        if live.bit_count() == value.end - first:
            fresh.add_range(first, value.end)
        else:
            fresh.update([base + number for number in numbers_of(live)])
        for offset in received:
            fresh.discard(offset)
        if value.delayed.times:
            delayed = BitMap64(offsets_of(value.delayed, base))
            delayed &= fresh
            inventory.delayed |= delayed
            fresh -= delayed
        if inventory.groups is None:
            for offset in received:
                inventory.place_received(offset, self._received.pop(offset), b"")
            inventory.available.put_all(fresh)
        else:
            self._place_in_groups(base, live, value)

    def _place_in_groups(self, base: int, live: int, value: IndexValue) -> None:
        members = members_of(value)
        for number in numbers_of(live):
            offset, group = base + number, value.groups[members[number]]
            held = self._received.pop(offset, None)
            if held is not None:
                self._inventory.place_received(offset, held, group)
            else:
                self._inventory.place(offset, group)


def _load_times(schedule: Schedule, chunk: int, end: int, times: TimesValue) -> None:
    if end & _IN_CHUNK:
        for step, first, last in spans_of(times, chunk << CHUNK_BITS):
            schedule.add(first, last, time_of(step))
    else:
        schedule.load(chunk, times)
