"""Selects the record batches of a Fetch response for a reader, and decodes their records one by one.

`columns` decodes the same batches in bulk, with numpy and Arrow; nothing here needs either. Left out are control
batches, batches outside of the requested offsets, a batch that is cut off at the end of the response and, where
`aborted` lists the aborted transactions of the response (read_committed), theirs. Checksums are verified.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from crc32c import crc32c

from headrace.model.errors import CorruptBatch, RecordError
from headrace.records.batch import (
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    iter_headers,
    read_header,
)
from headrace.records.markers import read_marker
from headrace.records.reader import Record, iter_records

INT64_MAX = 2**63 - 1
_MAGIC_AT = 16


class AbortedTransaction(Protocol):
    """An aborted transaction in a Fetch response; kio's class fits."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first_offset(self) -> int: ...


class FetchedBatch(NamedTuple):
    """A batch, from `start` to `end` of the buffer."""

    start: int
    end: int
    header: BatchHeader


def next_offset(buffer: Buffer, default: int) -> int:
    """The offset after the last whole batch in `buffer`, whatever it holds; `default` if there is none."""
    for _, header in iter_headers(buffer):
        default = header.next_offset
    return default


def read_records(
    buffer: Buffer,
    *,
    first_offset: int = 0,
    end_offset: int | None = None,
    aborted: Sequence[AbortedTransaction] | None = None,
) -> Iterator[Record]:
    """The records of `buffer` from `first_offset` on and below `end_offset`; raises `RecordError` as `decode` does."""
    below = INT64_MAX if end_offset is None else end_offset
    view = memoryview(buffer)
    for start, end, header in batches_in(view, first_offset, below, aborted):
        try:
            for record in iter_records(view[start:end], header):
                if first_offset <= record.offset < below:
                    yield record
        except RecordError as error:
            raise unreadable(error, header) from None


def batches_in(
    view: memoryview, first_offset: int, below: int, aborted: Sequence[AbortedTransaction] | None
) -> Iterator[FetchedBatch]:
    """The whole batches with records for the reader; checksums are verified."""
    ongoing: set[int] = set()
    to_come = sorted(aborted or (), key=lambda entry: entry.first_offset, reverse=True)
    end = 0
    while (header := _header(view, end)) is not None:
        start, end = end, end + header.length + LOG_OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        while to_come and to_come[-1].first_offset <= last_offset:
            ongoing.add(to_come.pop().producer_id)
        if header.base_offset >= below:
            return
        is_aborted = header.is_transactional and header.producer_id in ongoing if ongoing else False
        if header.attributes & CONTROL:
            if is_aborted:
                _check(view, start, end, header)
                marker = read_marker(view[start:end], header)
                if marker is not None and not marker.committed:
                    ongoing.discard(header.producer_id)
        elif last_offset >= first_offset and not is_aborted:
            _check(view, start, end, header)
            if header.record_count:
                yield FetchedBatch(start, end, header)


def unreadable(error: RecordError, header: BatchHeader) -> RecordError:
    return type(error)(f"the record batch at offset {header.base_offset} cannot be read: {error}")


def _check(view: memoryview, start: int, end: int, header: BatchHeader) -> None:
    if crc32c(view[start + CRC_COVERS_FROM : end]) != header.crc:
        raise unreadable(CorruptBatch("it has a wrong checksum"), header)


def _header(view: memoryview, position: int) -> BatchHeader | None:
    """The header of the batch at `position`; None if the batch is cut off."""
    left = len(view) - position
    if left > _MAGIC_AT and view[position + _MAGIC_AT] < MAGIC:
        raise CorruptBatch(
            f"the records at byte {position} are of version {view[position + _MAGIC_AT]}, from before Kafka 0.11, and "
            "cannot be read: write them again with a newer client"
        )
    if left < HEADER_SIZE:
        return None
    header = read_header(view, position)
    size = header.length + LOG_OVERHEAD
    if header.magic != MAGIC:
        raise CorruptBatch(f"the record batch at byte {position} claims to be of version {header.magic}, 2 is known")
    if size < HEADER_SIZE:
        raise CorruptBatch(f"the record batch at byte {position} claims to have {size} bytes in all")
    if size > left:
        return None
    if not 0 <= header.last_offset_delta <= INT64_MAX - 1 - header.base_offset < INT64_MAX:
        raise CorruptBatch(
            f"the record batch at byte {position} claims the offsets {header.base_offset} to {header.last_offset}"
        )
    return header
