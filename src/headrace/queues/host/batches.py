"""Leased messages as the batches of the log that have them: their bytes as they are, without decoding a record."""

from collections.abc import Sequence

from headrace.model.errors import HeadraceError
from headrace.queues.engine.engine import Lease, LeaseRange
from headrace.queues.engine.leases import GROUP_FROM
from headrace.records.batch import ENCRYPTED, Buffer, iter_headers
from headrace.replication.partition import Partition

_READ_BYTES = 128 * 1024
_MOST_BYTES = 4 * 1024 * 1024
_MOST_OTHERS = 2
"""No more records in all than so many times those that are wanted."""


def count_of(ranges: Sequence[LeaseRange]) -> int:
    return sum(last - first + 1 for first, last, *_ in ranges)


def leases_of(ranges: Sequence[LeaseRange]) -> list[Lease]:
    """Each message with its lease."""
    return [
        Lease(offset, attempt, deadline_ms, first_received_ms)
        for first, last, attempt, deadline_ms, first_received_ms in ranges
        for offset in range(first, last + 1)
    ]


def batches_of(partition: Partition, ranges: Sequence[LeaseRange]) -> bytes | None:
    """The batches with these messages, by offset. None if they are to be read one by one: because they are few, or far
    apart, or not in the page cache, or large."""
    wanted = count_of(ranges)
    if wanted < GROUP_FROM:
        return None
    found = _FoundBatches(partition, most_records=_MOST_OTHERS * wanted)
    try:
        if not all(found.add(first, last) for first, last in _together(ranges)):
            return None
    except (HeadraceError, OSError):
        return None
    return b"".join(found.parts)


def _together(ranges: Sequence[LeaseRange]) -> list[tuple[int, int]]:
    """The ranges in the order of the log, with neighbours as one."""
    found: list[tuple[int, int]] = []
    for first, last, *_ in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


class _FoundBatches:
    def __init__(self, partition: Partition, most_records: int) -> None:
        self.parts: list[Buffer] = []
        self._partition = partition
        self._most_records = most_records
        self._size_bytes = 0
        self._read_bytes = 0
        self._next_offset = 0

    def add(self, first: int, last: int) -> bool:
        """Add the batches with these offsets that are not there yet; False if they cannot be had, or are too many."""
        offset = max(first, self._next_offset)
        while offset <= last:
            cut = self._partition.slice(offset, _READ_BYTES, committed=True, at_least_one=True)
            data = cut.read_cached() if cut is not None and cut.length <= _MOST_BYTES else None
            if data is None:
                return False
            self._read_bytes += len(data)
            begin = end = -1
            for position, header in iter_headers(data):
                if header.next_offset <= offset:
                    continue
                if header.base_offset > last:
                    break
                if header.attributes & ENCRYPTED or header.codec:
                    # Its size is known only when it is decompressed.
                    return False
                begin = position if begin < 0 else begin
                end = position + header.size
                offset = self._next_offset = header.next_offset
                self._most_records -= header.record_count
            if begin < 0:
                return False
            self.parts.append(memoryview(data)[begin:end])
            self._size_bytes += end - begin
            if self._most_records < 0 or max(self._size_bytes, self._read_bytes) > _MOST_BYTES:
                return False
        return True
