"""The index of the log: the properties of messages, persisted so that records need not be read again. Pure.

A complete chunk of offsets is an entry, of about twenty bytes if its messages are plain. The records of the open chunk
are read again after a restart, unless it was saved while incomplete.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from headrace.coordinator.machine import InternalRecord
from headrace.model.features import LATEST_LEVEL, NARROW_TIMES_LEVEL
from headrace.model.invariants import invariant
from headrace.model.queued import HIGHEST_PRIORITY, LOWEST_PRIORITY, NORMAL_PRIORITY
from headrace.queues.engine.moved_pages import PageSlot
from headrace.queues.engine.packed_times import Span, packed, spans_of, step_of
from headrace.queues.engine.stored import (
    CHUNK,
    CHUNK_BITS,
    INDEX,
    WIDE_ITEM_BYTES,
    IndexValue,
    NarrowIndexValue,
    decode,
    entry,
    number_of,
    tombstone,
)

NO_GROUP = 0xFFFF
_ALL = (1 << CHUNK) - 1
_LEVEL_BITS = max(level ^ NORMAL_PRIORITY for level in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)).bit_length()
_MEMBERS = Struct(f"<{CHUNK}H")


class LogMessage(NamedTuple):
    """A message of the log, with the properties that the engine needs."""

    offset: int
    sent_ms: int
    """The timestamp of its record. A future time counts as now."""
    priority: int = NORMAL_PRIORITY
    due_ms: int | None = None
    """None: after the queue's delay. 0: at once."""
    expires_ms: int | None = None
    group: bytes | None = None
    """The header `hr.group`, or the record's key. Used by fifo queues only: all messages without one are one group."""
    dedupe: bytes | None = None
    """The de-duplication id. For fifo queues only."""
    id: str = ""
    """The message's id, which is the answer to a duplicate. Needed with `dedupe` only."""
    place: PageSlot | None = None
    """For a message that came from another queue."""


class DuplicateMessage(NamedTuple):
    """A message that is acked at once, because an earlier one is the same."""

    offset: int
    first_offset: int
    first_id: str


class OpenChunk:
    """The index of a chunk that is incomplete. Numbers are counted from its start."""

    def __init__(self, number: int, end: int) -> None:
        self.number = number
        self.end = end
        """The first offset that is not indexed."""
        self._ages: list[tuple[int, int]] = []
        self._age_began_ms = 0
        self._levels: dict[int, int] = {}
        self._delayed: list[Span] = []
        self._expiring: list[Span] = []
        self._groups: dict[bytes, int] = {}
        self._members = array("H")
        """For each number the index of its group, or `NO_GROUP`, as far as there are any."""

    @classmethod
    def load(cls, number: int, value: IndexValue) -> "OpenChunk":
        chunk = cls(number, value.end)
        chunk._ages = list(value.ages)
        chunk._age_began_ms = value.ages[-1][1] if value.ages else 0
        chunk._levels = dict(levels_of(value))
        chunk._delayed = list(spans_of(value.delayed))
        chunk._expiring = list(spans_of(value.expiring))
        chunk._groups = {group: place for place, group in enumerate(value.groups)}
        chunk._members.extend(members_of(value)[: value.end - (number << CHUNK_BITS)])
        return chunk

    def value(self, *, may_be_narrow: bool) -> IndexValue:
        """The index so far; in fewer bytes, if it `may_be_narrow`."""
        delayed = packed(self._delayed, may_be_narrow=may_be_narrow)
        expiring = packed(self._expiring, may_be_narrow=may_be_narrow)
        planes = self._level_planes() if may_be_narrow and len(self._levels) > _LEVEL_BITS else []
        levels = [] if planes else [(level, _packed_bits(bits)) for level, bits in self._levels.items()]
        groups, members = list(self._groups), self._packed_members()
        if planes or min(delayed.item_bytes, expiring.item_bytes) < WIDE_ITEM_BYTES:
            return NarrowIndexValue(self.end, self._ages, levels, delayed, expiring, groups, members, planes)
        return IndexValue(self.end, self._ages, levels, delayed, expiring, groups, members)

    def _level_planes(self) -> list[bytes]:
        planes = [0] * _LEVEL_BITS
        for level, bits in self._levels.items():
            for place in range(_LEVEL_BITS):
                if (level ^ NORMAL_PRIORITY) >> place & 1:
                    planes[place] |= bits
        return [_packed_bits(plane) for plane in planes]

    def add_age(self, last: int, sent_ms: int, grain_ms: int) -> None:
        ages = self._ages
        if ages and sent_ms - self._age_began_ms < grain_ms:
            ages[-1] = (last, max(ages[-1][1], sent_ms))
        else:
            self._age_began_ms = sent_ms
            ages.append((last, sent_ms))

    def add_level(self, number: int, level: int) -> None:
        self._levels[level] = self._levels.get(level, 0) | 1 << number

    def add_delayed(self, first: int, last: int, due_ms: int) -> None:
        _append(self._delayed, first, last, due_ms)

    def add_expiring(self, number: int, expires_ms: int) -> None:
        _append(self._expiring, number, number, expires_ms)

    def add_member(self, number: int, group: bytes) -> None:
        members = self._members
        while len(members) < number:
            members.append(NO_GROUP)
        members.append(self._groups.setdefault(group, len(self._groups)))

    def _packed_members(self) -> bytes:
        if not self._members:
            return b""
        return _MEMBERS.pack(*self._members, *repeat(NO_GROUP, CHUNK - len(self._members)))


def _append(spans: list[Span], first: int, last: int, time_ms: int) -> None:
    step = step_of(time_ms)
    if spans and spans[-1][0] == step and spans[-1][2] + 1 == first:
        first = spans.pop()[1]
    spans.append((step, first, last))


def _packed_bits(bits: int) -> bytes:
    return bits.to_bytes(CHUNK // 8, "little")


def levels_of(value: IndexValue) -> list[tuple[int, int]]:
    """The priority levels in use, except the normal one, each with a bit for each of its messages."""
    if not isinstance(value, NarrowIndexValue) or not value.level_planes:
        return [(level, int.from_bytes(bits, "little")) for level, bits in value.levels]
    planes = [int.from_bytes(bits, "little") for bits in value.level_planes]
    found = []
    for level in range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1):
        bits = _ALL if level != NORMAL_PRIORITY else 0
        for place, plane in enumerate(planes):
            bits &= plane if (level ^ NORMAL_PRIORITY) >> place & 1 else ~plane
        if bits:
            found.append((level, bits))
    return found


def members_of(value: IndexValue) -> tuple[int, ...]:
    """For each number in the chunk, the index of its message's group, or `NO_GROUP`; empty if there are no groups."""
    return _MEMBERS.unpack(value.members) if value.members else ()


class ChunkIndex:
    """The chunks that are to be persisted."""

    def __init__(
        self,
        start: int,
        closed: Callable[[int, IndexValue], None],
        feature_level: Callable[[], int] = lambda: LATEST_LEVEL,
    ) -> None:
        """`closed` is called with each complete chunk, as it is persisted."""
        self.saved_to = start
        """Records below need not be read again after a restart."""
        self._closed = closed
        self._feature_level = feature_level
        self._open = OpenChunk(start >> CHUNK_BITS, start)
        self._whole: list[tuple[int, InternalRecord]] = []
        """Complete chunks that are to be persisted, and where each ends."""
        self._stored: deque[int] = deque()
        """The numbers of stored chunks, rising."""
        self._is_open_wanted = False

    def at(self, offset: int) -> OpenChunk:
        """The open chunk for an offset; a chunk before it is complete."""
        if offset >> CHUNK_BITS != self._open.number:
            whole = self._open
            made = self._entry(whole)
            self._whole.append((whole.end, made))
            _, _, stored = decode(made)
            assert isinstance(stored, IndexValue)
            self._closed(whole.number, stored)
            self._open = OpenChunk(offset >> CHUNK_BITS, offset)
        return self._open

    def _entry(self, chunk: OpenChunk) -> InternalRecord:
        may_be_narrow = self._feature_level() >= NARROW_TIMES_LEVEL
        return entry(INDEX, chunk.number, chunk.value(may_be_narrow=may_be_narrow))

    def roll(self) -> None:
        """Begin the next chunk if the open one is complete."""
        if self._open.end == (self._open.number + 1) << CHUNK_BITS:
            self.at(self._open.end)

    @property
    def open_chunk(self) -> int:
        return self._open.number

    def restart(self, start: int) -> None:
        """Drop the index, and go on indexing from here."""
        self._whole.clear()
        self._open = OpenChunk(start >> CHUNK_BITS, start)
        self.saved_to = start
        self._is_open_wanted = False

    @property
    def is_unsaved(self) -> bool:
        return self._open.end > self.saved_to

    def save_open(self) -> None:
        """Persist the open chunk as it is with the next changes."""
        self._is_open_wanted = self.is_unsaved

    # -- persisting

    def load(self, stored: Iterable[int], last: tuple[int, IndexValue] | None, end: int) -> None:
        """These chunks are stored. `last` is the one to continue, at offset `end`."""
        self.restart(end)
        self._stored = deque(sorted(stored))
        if last is not None and last[1].end == end and end >> CHUNK_BITS == last[0]:
            self._open = OpenChunk.load(*last)

    def take(self, head: int) -> list[InternalRecord]:
        chunks = self._whole
        if self._is_open_wanted:
            chunks = [*chunks, (self._open.end, self._entry(self._open))]
        entries = []
        for end, made in chunks:
            self.saved_to = end
            number = number_of(made)
            # The head is persisted when it has passed a chunk, and not before.
            if (number + 1) << CHUNK_BITS > head:
                entries.append(made)
                if not self._stored or self._stored[-1] != number:
                    self._stored.append(number)
        self._whole = []
        self._is_open_wanted = False
        return entries

    def take_passed(self, head: int) -> list[InternalRecord]:
        passed = []
        while self._stored and (self._stored[0] + 1) << CHUNK_BITS <= head:
            passed.append(tombstone(INDEX, self._stored.popleft()))
        most = max(0, self._open.number - (head >> CHUNK_BITS) + 1)
        invariant(len(self._stored) <= most, 57, "the index has no more entries than chunks from the head on")
        return passed
