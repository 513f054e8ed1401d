"""The messages of a queue, and where each of them is. Pure.

`Stock` learns of messages from the log, puts each where it belongs, keeps what must survive and loads it again. What
happens to messages afterwards is `engine.Engine`'s.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from pyroaring import BitMap64

from headrace.config.queue import MAX_VISIBILITY_MS, QueueSettings
from headrace.coordinator.machine import InternalRecord
from headrace.model.queued import NORMAL_PRIORITY
from headrace.queues.engine.acked import AckedOffsets, bits_of, chunks_of, number_with, numbers_of
from headrace.queues.engine.available import AvailableMessages
from headrace.queues.engine.chunk_index import ChunkIndex, DuplicateMessage, LogMessage, members_of
from headrace.queues.engine.dedupe import DedupeIds, digest
from headrace.queues.engine.delayed_retention import DelayedRetention
from headrace.queues.engine.fifo import MessageGroups
from headrace.queues.engine.leases import Leases
from headrace.queues.engine.moved_pages import MovedPages
from headrace.queues.engine.packed_times import offsets_of, spans_of, time_of
from headrace.queues.engine.schedule import Schedule
from headrace.queues.engine.send_times import SendTimes, grain_ms
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


@dataclass(frozen=True, slots=True)
class EnginePolicy:
    """What an engine keeps, and how it ends."""

    leases: bool = True
    """Whether leases survive a restart. If not, attempts do, and one that a restart ended does not count towards the
    limit: its receiver may not have failed."""
    index: bool = True
    """Whether what was indexed survives. If not, everything from head on is indexed again: for plain messages only."""
    dead_letters: bool = True
    """Whether messages at the limit of attempts are to be moved. If not, they are done."""
    longest_lease_ms: int | None = MAX_VISIBILITY_MS
    """From the receive on, with everything that it was extended by."""


QUEUE_POLICY = EnginePolicy()


class Inventory:
    def __init__(self, settings: QueueSettings, keeping: EnginePolicy) -> None:
        self._keeping = keeping
        self._settings = settings
        self._done = AckedOffsets()
        self._leases = Leases(survive=keeping.leases)
        self._ids = DedupeIds()
        self._pages = MovedPages()
        self._index = ChunkIndex(0, self._chunk_closed)
        self.indexed_to = 0
        """The offset that is to be indexed next."""
        self._unindexed: dict[int, LeaseRecord] = {}
        """Messages that were received before this was loaded, and are not indexed yet."""
        self._known_to = -1
        """Offsets up to here may be done, or were received, before they are indexed."""
        self._begin()

    def _begin(self) -> None:
        """Everything that is about messages which are not done."""
        settings = self._settings
        self._live = 0
        self._ages = SendTimes(grain_ms(settings.retention_ms, settings.priority_ageing_ms))
        self._shelf = AvailableMessages(self._ages, settings.priority_ageing_ms)
        self._delayed = BitMap64()
        self._delays = Schedule()
        self._expiries = Schedule()
        self._late = DelayedRetention(settings.retention_ms)
        self._aged_to = 0
        """All below are done that are too old by when they were sent, unless they were to be received later."""
        self._expired: set[int] = set()
        """In flight, and not to be received again."""
        self._dead: dict[int, None] = {}
        self._moving: set[int] = set()
        """Held until they are in another queue."""
        self._groups = (
            MessageGroups(
                self._shelf,
                is_gone=self._is_gone,
                is_blocked=self._is_blocked,
                make_available=self._make_available,
            )
            if settings.is_fifo
            else None
        )

    def _is_gone(self, offset: int) -> bool:
        return offset in self._done or offset in self._dead

    def _is_blocked(self, offset: int) -> bool:
        """Whether it is in flight, or hidden."""
        held = self._leases.held.get(offset)
        if held is None:
            return offset in self._delayed or offset in self._moving
        return held.is_leased or self._leases.is_hidden(offset) or offset in self._moving

    def _make_available(self, offset: int) -> None:
        """Put a message on the shelf: one that was received before behind all that wait."""
        held = self._leases.held.get(offset)
        if held is None:
            self._shelf.put(offset)
        else:
            self._shelf.put_behind(offset, self._tail, held.until_ms)

    @property
    def _tail(self) -> int:
        """The offset behind all messages that wait."""
        return self.indexed_to

    @property
    def head(self) -> int:
        """Everything below is done."""
        return min(self._done.head, self.indexed_to)

    @property
    def log_start(self) -> int:
        """Records below are not needed."""
        return min(self.head, self._index.saved_to)

    def live(self, first: int) -> Iterator[int]:
        """The messages that are not done, from this offset on, in the order of their offsets."""
        for chunk, start, end in chunks_of(max(first, self.head), self.indexed_to - 1):
            base = chunk << CHUNK_BITS
            for number in numbers_of(bits_of(start, end) & ~self._done.bits(chunk)):
                yield base + number

    # -- the log

    def index(self, arrivals: Iterable[LogMessage], now_ms: int) -> list[DuplicateMessage]:
        """The next messages of the log. Those that are there already are returned: they are done."""
        duplicates = []
        for arrival in arrivals:
            if arrival.offset >= self.indexed_to:
                self.skip(self.indexed_to, arrival.offset - 1)
                duplicate = self._admit(arrival, now_ms)
                if duplicate is not None:
                    duplicates.append(duplicate)
        return duplicates

    def _admit(self, arrival: LogMessage, now_ms: int) -> DuplicateMessage | None:
        offset, number = arrival.offset, arrival.offset & _IN_CHUNK
        settings = self._settings
        sent_ms = min(arrival.sent_ms, now_ms)
        self.indexed_to = offset + 1
        chunk = self._index.at(offset)
        chunk.end = offset + 1
        chunk.add_age(number, sent_ms, self._ages.grain)
        self._ages.add(offset, sent_ms)
        group = arrival.group or b""
        is_done = offset <= self._known_to and offset in self._done
        if arrival.dedupe is not None:
            known = digest(arrival.dedupe, group if settings.dedupe_scope == "messageGroup" else None)
            first = self._ids.first(known, offset, sent_ms, arrival.id)
            if first is not None:
                if not is_done:
                    self._done.add(offset)
                return DuplicateMessage(offset, *first)
        if arrival.place is not None and not self._pages.is_new(arrival.place, offset):
            if not is_done:
                self._done.add(offset)
            return DuplicateMessage(offset, offset, arrival.id)
        if arrival.priority != NORMAL_PRIORITY and not is_done:
            chunk.add_level(number, arrival.priority)
            self._shelf.set_level(offset, arrival.priority)
        if self._groups is not None:
            chunk.add_member(number, group)
        if is_done:
            return None
        due_ms = arrival.due_ms
        if due_ms is None:
            due_ms = sent_ms + settings.delay_ms
        if due_ms > sent_ms:
            chunk.add_delayed(number, number, due_ms)
            if due_ms > now_ms:
                self._delays.add(offset, offset, due_ms)
            else:
                self._late.add(offset, offset, due_ms)
        if arrival.expires_ms is not None:
            chunk.add_expiring(number, arrival.expires_ms)
            self._expiries.add(offset, offset, arrival.expires_ms)
        self._live += 1
        held = self._unindexed.pop(offset, None) if self._unindexed else None
        if held is not None:
            self._place_held(offset, held, group)
            return None
        if due_ms > now_ms:
            self._delayed.add(offset)
        self._place(offset, group)
        return None

    def _place(self, offset: int, group: bytes) -> None:
        """Of a new message that may be hidden."""
        if self._groups is not None:
            self._groups.add(offset, group)
        elif offset not in self._delayed:
            self._shelf.put(offset)

    def _place_held(self, offset: int, held: LeaseRecord, group: bytes) -> None:
        self._leases.load(offset, held)
        if self._groups is not None:
            self._groups.add(offset, group)

    def index_plain(self, first: int, last: int, sent_ms: int | None, now_ms: int) -> None:
        """Like `index` for messages first to last that say nothing but their time, at hardly more than for one."""
        self.skip(self.indexed_to, first - 1)
        first = max(first, self.indexed_to)
        if last < first:
            return
        if self._groups is not None or first <= self._known_to:
            middle = last if self._groups is not None else min(last, self._known_to)
            self.index(
                (LogMessage(offset, now_ms if sent_ms is None else sent_ms) for offset in range(first, middle + 1)),
                now_ms,
            )
            first = middle + 1
            if last < first:
                return
        self._live += last - first + 1
        self.indexed_to = last + 1
        due_ms = 0
        if sent_ms is not None:
            sent_ms = min(sent_ms, now_ms)
            self._ages.add(last, sent_ms)
            if self._settings.delay_ms:
                due_ms = sent_ms + self._settings.delay_ms
        if self._keeping.index:
            for number, start, end in chunks_of(first, last):
                chunk = self._index.at((number << CHUNK_BITS) + start)
                chunk.end = (number << CHUNK_BITS) + end + 1
                if sent_ms is not None:
                    chunk.add_age(end, sent_ms, self._ages.grain)
                if due_ms:
                    chunk.add_delayed(start, end, due_ms)
                if due_ms > now_ms:
                    self._delays.add((number << CHUNK_BITS) + start, (number << CHUNK_BITS) + end, due_ms)
        if 0 < due_ms <= now_ms:
            self._late.add(first, last, due_ms)
        if due_ms > now_ms:
            self._delayed.add_range(first, last + 1)
        else:
            self._shelf.put_normal(first, last)

    def skip(self, first: int, last: int) -> None:
        """There are no messages at these offsets, nor between those that were indexed and them."""
        if last < self.indexed_to:
            return
        if last - self.indexed_to > CHUNK and self.head == self.indexed_to > self._known_to:
            # Nothing is there yet, and the log begins far on.
            self._start_at(last + 1)
            return
        first, self.indexed_to = self.indexed_to, last + 1
        self._done.add_range(first, last)
        if self._keeping.index:
            for number, _, end in chunks_of(first, last):
                self._index.at(number << CHUNK_BITS).end = (number << CHUNK_BITS) + end + 1

    def _chunk_closed(self, number: int, value: IndexValue) -> None:
        self._delays.close(number, value.delayed)
        self._expiries.close(number, value.expiring)

    # -- messages that are done

    def _finish(self, offset: int) -> None:
        """It is done. It was not."""
        self._done.add(offset)
        self._live -= 1
        held = self._leases.forget(offset)
        self._shelf.forget(offset)
        if offset in self._moving:
            self._moving.remove(offset)
        if held is None:
            self._delayed.discard(offset)
        elif self._dead:
            self._dead.pop(offset, None)
        if self._expired:
            self._expired.discard(offset)
        if self._groups is not None:
            self._groups.gone(offset)

    def _finish_all(self, offsets: Collection[int]) -> None:
        """They are done. None of them was."""
        if self._groups is not None or self._moving:
            for offset in offsets:
                self._finish(offset)
            return
        ordered = sorted(offsets)
        first = 0
        for at, offset in enumerate(ordered, 1):
            if at == len(ordered) or ordered[at] != offset + 1:
                if first == at - 1:
                    self._finish(offset)
                else:
                    self._finish_run(ordered[first], offset)
                first = at

    def _finish_run(self, first: int, last: int) -> None:
        """The same for all of these, of a standard queue of which nothing is being moved."""
        self._done.add_range(first, last)
        self._live -= last - first + 1
        self._shelf.forget_range(first, last)
        if self._delayed:
            self._delayed.remove_range(first, last + 1)
        for offset in range(first, last + 1):
            self._leases.forget(offset)
            self._dead.pop(offset, None)
            self._expired.discard(offset)

    def _finish_up_to(self, last: int) -> None:
        """All that were indexed up to here are done."""
        head, last = self.head, min(last, self.indexed_to - 1)
        if last < head:
            return
        for offset in [offset for offset in chain(self._moving, self._leases.held) if offset <= last]:
            if offset not in self._done:
                self._finish(offset)
        self._live -= self._done.add_range(self.head, last)
        self._shelf.forget_range(head, last)
        self._delayed.remove_range(head, last + 1)
        if self._groups is not None:
            self._groups.gone_up_to(last)

    def _finish_aged(self, last: int) -> None:
        """The same for those that were not sent to be received later."""
        first = max(self.head, self._aged_to)
        self._aged_to = last + 1
        gone = BitMap64()
        gone.add_range(first, last + 1)
        gone -= self._delayed
        gone -= self._late.between(gone)
        for offset in [offset for offset in chain(self._moving, self._leases.held) if offset in gone]:
            if offset not in self._done:
                self._finish(offset)
        for chunk, start, end in chunks_of(first, last):
            base = chunk << CHUNK_BITS
            part = BitMap64()
            part.add_range(base + start, base + end + 1)
            part &= gone
            self._live -= self._done.add_bits(chunk, number_with(offset - base for offset in part))
        self._shelf.forget_all(gone)
        if self._groups is not None:
            self._groups.gone_up_to(last)

    def _start_at(self, head: int) -> None:
        """Everything is forgotten but the ids and pages; indexing goes on from here."""
        for offset in list(self._leases.held):
            self._leases.forget(offset)
        self._done.move_to(head)
        self._ids.save_open()
        self._index.restart(head)
        self._unindexed.clear()
        self._known_to = -1
        self.indexed_to = head
        self._begin()

    # -- what is kept

    def take_changes(self) -> list[InternalRecord]:
        """What is to be kept, since it was asked last, in an order of which any prefix is whole."""
        if self._keeping.index:
            self._index.roll()
        else:
            self._index.restart(self.indexed_to)
        done, leases, index, ids = self._done, self._leases, self._index, self._ids
        if done.is_head_dirty:
            ids.save_open()
        # Records below the head, or in a chunk that is indexed, are not read again: their ids and pages come before.
        # After a purge a chunk says nothing of what was before it: the head comes before. The index of a chunk does not
        # say which of its records are done, or no messages: that comes before. Tombstones come after what they stand
        # for.
        parts = (
            ids.take(index.open_chunk),
            self._pages.take(index.saved_to),
            done.take_head(),
            done.take_bits(),
            leases.take_held(),
            index.take(done.head),
            done.take_passed(),
            leases.take_done(),
            index.take_passed(done.head),
            ids.take_passed(),
        )
        return list(chain.from_iterable(parts))

    def load(self, entries: Iterable[InternalRecord]) -> None:
        """Go on from what was kept: the live entries, in any order. To be called once, before anything else."""
        done: dict[int, AckedValue] = {}
        held: dict[int, LeaseRecord] = {}
        leased: dict[int, LeaseValue] = {}
        chunks: dict[int, InternalRecord] = {}
        ids: dict[int, IdsValue] = {}
        pages: dict[int, PagesValue] = {}
        for record in entries:
            if is_index(record):
                # Decoded one after another: together they may be larger than the queue's state.
                chunks[number_of(record)] = record
                continue
            _, number, value = decode(record)
            match value:
                case HeadValue():
                    self._done.load_head(value)
                case AckedValue():
                    done[number] = value
                case LeaseRecord():
                    held[number] = value
                case LeaseValue():
                    leased[number] = value
                case IdsValue():
                    ids[number] = value
                case PagesValue():
                    pages[number] = value
        self.indexed_to = self._done.head
        for number, bits in done.items():
            self._done.load(number, bits)
        self._done.loaded()
        self._known_to = max((max(done, default=-1) + 1 << CHUNK_BITS) - 1, self._done.head - 1)
        for offset, one in held.items():
            is_live = offset not in self._done
            self._leases.mark_stored(offset, is_live=is_live)
            if is_live:
                self._unindexed[offset] = self._restored(one)
        for first, value in leased.items():
            live = {
                offset: self._restored(one)
                for offset, one in value.held(first)
                if offset not in held and offset not in self._done
            }
            self._leases.mark_stored_together(first, live)
            self._unindexed.update(live)
        self._known_to = max(self._known_to, max(self._unindexed, default=-1))
        self._load_chunks(chunks)
        self._ids.load(ids.items(), self.indexed_to)
        self._pages.load(pages.items(), self.indexed_to)

    def _restored(self, held: LeaseRecord) -> LeaseRecord:
        """A message as it is after a restart."""
        if not self._keeping.leases:
            held.until_ms = 0  # By the clock of another process, which may be far ahead of ours.
            if held.is_leased:
                held.is_leased = False
                held.excused += 1
        return held

    def _load_chunks(self, chunks: dict[int, InternalRecord]) -> None:
        held_in: dict[int, list[int]] = {}
        for offset in self._unindexed:
            held_in.setdefault(offset >> CHUNK_BITS, []).append(offset)
        number = self.indexed_to >> CHUNK_BITS
        last = None
        while number in chunks:
            _, _, value = decode(chunks[number])
            assert isinstance(value, IndexValue)
            if value.end > self.indexed_to:
                # Of those behind it, the records are read again.
                held = [offset for offset in held_in.get(number, ()) if offset < value.end]
                self._load_chunk(number, value, held)
                self.indexed_to = value.end
            last = (number, value)
            if value.end & _IN_CHUNK:
                break
            number += 1
        self._index.load(chunks, last, self.indexed_to)

    def _load_chunk(self, chunk: int, value: IndexValue, held: Iterable[int]) -> None:
        base, first = chunk << CHUNK_BITS, self.indexed_to
        live = bits_of(first & _IN_CHUNK, value.end - 1 - base) & ~self._done.bits(chunk)
        if self._done.head > first:
            live &= ~bits_of(0, min(self._done.head, value.end) - 1 - base)
        self._live += live.bit_count()
        for last, sent_ms in value.ages:
            self._ages.add(base + last, sent_ms)
        for level, bits in value.levels:
            members = int.from_bytes(bits, "little") & live
            self._shelf.set_levels(BitMap64([base + number for number in numbers_of(members)]), level)
        self._load_times(self._expiries, chunk, value.end, value.expiring)
        self._load_times(self._delays, chunk, value.end, value.delayed)
        fresh = BitMap64()
        if live.bit_count() == value.end - first:
            fresh.add_range(first, value.end)
        else:
            fresh.update([base + number for number in numbers_of(live)])
        for offset in held:
            fresh.discard(offset)
        if value.delayed.times:
            waiting = BitMap64(offsets_of(value.delayed, base))
            waiting &= fresh
            self._delayed |= waiting
            fresh -= waiting
        if self._groups is None:
            for offset in held:
                self._place_held(offset, self._unindexed.pop(offset), b"")
            self._shelf.put_all(fresh)
            return
        members_by_number = members_of(value)
        for number in numbers_of(live):
            offset, group = base + number, value.groups[members_by_number[number]]
            before = self._unindexed.pop(offset, None)
            if before is not None:
                self._place_held(offset, before, group)
            else:
                self._place(offset, group)

    @staticmethod
    def _load_times(schedule: Schedule, chunk: int, end: int, times: TimesValue) -> None:
        if end & _IN_CHUNK:
            for step, first, last in spans_of(times, chunk << CHUNK_BITS):
                schedule.add(first, last, time_of(step))
        else:
            schedule.load(chunk, times)
