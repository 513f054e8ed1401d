"""The aborted transactions of a log, whose records a read_committed consumer skips.

In memory for the whole log, 32 bytes each, in the order of their markers; on disk one file for each segment that has
markers of aborts, in Kafka's format:

    <base>.txnindex   34-byte entries: version (int16, 0), producer id, first offset, offset of the marker,
                      last stable offset after the marker (int64 each)

A file is written when its segment is closed, before the recovery point passes it. It is a cache like the other indexes:
recovery rebuilds it from the log.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headrace.records.batch import BatchHeader
from headrace.runtime.disk import Disk

_ENTRY = Struct(">hqqqq")


class AbortedDamaged(Exception):
    """The file is damaged: rebuild it from the log."""


class AbortedIndexEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's offset."""
    last_stable_offset: int
    """No transaction was open below it after this one had ended."""


class AbortedTransactions:
    __slots__ = ("_columns", "_last_offsets")

    def __init__(self, entries: Iterable[AbortedIndexEntry] = ()) -> None:
        self._columns = tuple(array("q") for _ in AbortedIndexEntry._fields)
        self._last_offsets = self._columns[2]
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedIndexEntry]:
        return (AbortedIndexEntry(*row) for row in zip(*self._columns, strict=True))

    def add(self, entry: AbortedIndexEntry) -> None:
        """Add a transaction whose marker comes after all others."""
        for column, value in zip(self._columns, entry, strict=True):
            column.append(value)

    def within(self, offset: int, below: int) -> list[AbortedIndexEntry]:
        """The transactions that overlap the offsets from `offset` up to `below`, in the order of their markers."""
        found = []
        for at in range(bisect_left(self._last_offsets, offset), len(self._last_offsets)):
            entry = AbortedIndexEntry(*(column[at] for column in self._columns))
            if entry.first_offset < below:
                found.append(entry)
            if entry.last_stable_offset >= below:
                break
        return found

    def ending_within(self, offset: int, below: int) -> list[AbortedIndexEntry]:
        """The transactions whose markers are at or after `offset` and before `below`."""
        first, end = bisect_left(self._last_offsets, offset), bisect_left(self._last_offsets, below)
        return [AbortedIndexEntry(*(column[at] for column in self._columns)) for at in range(first, end)]

    def covers(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        if not header.is_transactional or not self._last_offsets:
            return False
        first = bisect_left(self._last_offsets, header.base_offset)
        producer_ids, first_offsets = self._columns[0], self._columns[1]
        stable = self._columns[3]
        for at in range(first, len(self._last_offsets)):
            if producer_ids[at] == header.producer_id:
                return first_offsets[at] <= header.base_offset
            if stable[at] > header.base_offset:
                return False
        return False

    def keep(self, offset: int, below: int) -> None:
        """Remove the transactions whose markers are before `offset`, or at or after `below`."""
        first, end = bisect_left(self._last_offsets, offset), bisect_left(self._last_offsets, below)
        for column in self._columns:
            del column[end:]
            del column[:first]

    def forget(self, last_offsets: Iterable[int]) -> None:
        """Remove the transactions with these marker offsets."""
        for last_offset in last_offsets:
            at = bisect_left(self._last_offsets, last_offset)
            if at < len(self) and self._last_offsets[at] == last_offset:
                for column in self._columns:
                    del column[at]


# Files


def aborted_to_bytes(entries: Iterable[AbortedIndexEntry]) -> bytes:
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def replace_aborted(disk: Disk, path: Path, entries: list[AbortedIndexEntry]) -> None:
    """Replace the file's entries, durably; without entries the file is removed."""
    if entries:
        disk.write_atomic(path, aborted_to_bytes(entries))
    else:
        disk.unlink(path)


def read_aborted(disk: Disk, path: Path, base_offset: int, next_offset: int) -> list[AbortedIndexEntry]:
    """Read a segment's file, without entries of other segments that a merge was about to add. `AbortedDamaged`."""
    data = disk.read_bytes(path)
    if len(data) % _ENTRY.size:
        raise AbortedDamaged("it is cut off")
    entries: list[AbortedIndexEntry] = []
    last = -1
    for version, *fields in _ENTRY.iter_unpack(data):
        entry = AbortedIndexEntry(*fields)
        if version != 0 or not last < entry.last_offset or not 0 <= entry.first_offset <= entry.last_offset:
            raise AbortedDamaged(f"it has no entry at {len(entries)}")
        last = entry.last_offset
        if base_offset <= last < next_offset:
            entries.append(entry)
    return entries
