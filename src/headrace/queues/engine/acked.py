"""The offsets of acked messages. Pure.

All offsets below `head` are acked. Above it, a chunk of offsets with any acked ones has their bits in one number: 512
bytes for 4,096 messages, in whatever order they were acked. Offsets without a message count as acked.
"""

from collections.abc import Iterable, Iterator

from headrace.coordinator.machine import InternalRecord
from headrace.queues.engine.stored import ACKED, CHUNK, CHUNK_BITS, HEAD, AckedValue, HeadValue, entry, tombstone

_IN_CHUNK = CHUNK - 1
_FULL = (1 << CHUNK) - 1


def bits_of(first: int, last: int) -> int:
    """A number with the bits first to last."""
    return ((1 << (last - first + 1)) - 1) << first


def numbers_of(bits: int) -> Iterator[int]:
    """The bits of a number, from the lowest."""
    for start, byte in enumerate(bits.to_bytes((bits.bit_length() + 7) // 8, "little")):
        if byte:
            for number in _NUMBERS[byte]:
                yield start * 8 + number


def number_with(bits: Iterable[int]) -> int:
    """The number with these bits."""
    found = bytearray(CHUNK // 8)
    for bit in bits:
        found[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(found, "little")


_NUMBERS = tuple(tuple(number for number in range(8) if byte >> number & 1) for byte in range(256))


def chunks_of(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The chunks of offsets first to last: each with the first and last number in it."""
    while first <= last:
        chunk = first >> CHUNK_BITS
        end = min(last, (chunk << CHUNK_BITS) + _IN_CHUNK)
        yield chunk, first & _IN_CHUNK, end & _IN_CHUNK
        first = end + 1


class AckedOffsets:
    def __init__(self) -> None:
        self.head = 0
        """The first offset that is not acked. Not past the last one added."""
        self._bits: dict[int, int] = {}
        self._dirty: set[int] = set()
        self._stored: set[int] = set()
        self._passed: set[int] = set()
        """Stored chunks below the head."""
        self.is_head_dirty = False
        """Whether the head is among the next changes."""

    def __contains__(self, offset: int) -> bool:
        if offset < self.head:
            return True
        bits = self._bits.get(offset >> CHUNK_BITS)
        return bits is not None and bool(bits >> (offset & _IN_CHUNK) & 1)

    def bits(self, chunk: int) -> int:
        """The acked offsets of a chunk that is not below the head."""
        return self._bits.get(chunk, 0)

    def add(self, offset: int) -> None:
        """An offset that is not acked yet."""
        chunk = offset >> CHUNK_BITS
        self._bits[chunk] = self._bits.get(chunk, 0) | 1 << (offset & _IN_CHUNK)
        self._dirty.add(chunk)
        if offset == self.head:
            self._move_head()

    def add_range(self, first: int, last: int) -> int:
        """How many of them were not acked yet."""
        added = 0
        for chunk, start, end in chunks_of(max(first, self.head), last):
            added += self._add(chunk, bits_of(start, end))
        if first <= self.head <= last:
            self._move_head()
        return added

    def add_bits(self, chunk: int, bits: int) -> int:
        """Like `add_range` for some offsets of a chunk."""
        head_chunk = self.head >> CHUNK_BITS
        if chunk < head_chunk:
            return 0
        if chunk > head_chunk:
            return self._add(chunk, bits)
        added = self._add(chunk, bits & ~((1 << (self.head & _IN_CHUNK)) - 1))
        self._move_head()
        return added

    def _add(self, chunk: int, bits: int) -> int:
        before = self._bits.get(chunk, 0)
        after = before | bits
        if after != before:
            self._bits[chunk] = after
            self._dirty.add(chunk)
        return after.bit_count() - before.bit_count()

    def _move_head(self) -> None:
        chunk = self.head >> CHUNK_BITS
        bits = self._bits.get(chunk, 0) | ((1 << (self.head & _IN_CHUNK)) - 1)
        while bits == _FULL:
            self._bits.pop(chunk, None)
            self._dirty.discard(chunk)
            self._passed.add(chunk)
            self.is_head_dirty = True
            chunk += 1
            bits = self._bits.get(chunk, 0)
        # The lowest bit that is not set.
        self.head = (chunk << CHUNK_BITS) + (~bits & (bits + 1)).bit_length() - 1

    def move_to(self, head: int) -> None:
        """All offsets below are acked, and no others."""
        self.head = head
        self._bits.clear()
        self._dirty.clear()
        self._passed |= self._stored
        self.is_head_dirty = True

    # -- persisting

    def load_head(self, value: HeadValue) -> None:
        self.head = value.head

    def load(self, chunk: int, value: AckedValue) -> None:
        """After the head."""
        self._stored.add(chunk)
        if (chunk + 1) << CHUNK_BITS > self.head:
            self._bits[chunk] = int.from_bytes(value.bits, "little")
        else:
            self._passed.add(chunk)

    def loaded(self) -> None:
        self._move_head()

    def take_bits(self) -> list[InternalRecord]:
        entries = []
        for chunk in sorted(self._dirty):
            bits = self._bits[chunk]
            entries.append(entry(ACKED, chunk, AckedValue(bits.to_bytes((bits.bit_length() + 7) // 8, "little"))))
        self._stored |= self._dirty
        self._dirty.clear()
        return entries

    def take_head(self) -> list[InternalRecord]:
        """The head, if it has passed a chunk since the last call."""
        if not self.is_head_dirty:
            return []
        self.is_head_dirty = False
        return [entry(HEAD, 0, HeadValue(self.head))]

    def take_passed(self) -> list[InternalRecord]:
        passed = sorted(chunk for chunk in self._passed & self._stored if chunk not in self._bits)
        self._passed.clear()
        self._stored.difference_update(passed)
        return [tombstone(ACKED, chunk) for chunk in passed]
