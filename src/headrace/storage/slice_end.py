"""Where a slice ends that would exceed its size: after the last whole batch that fits.

A client discards a batch that is cut off, and fetches its bytes again. The offset index knows the position of a batch
near the limit, at most `index.interval.bytes` before the last one that fits; the headers from there on say the rest.
They are read only if they are in the page cache. Otherwise the slice ends at the position that the index knows: what is
to be read from the disk anyway is then read by a worker thread.
"""

from struct import Struct
from typing import NamedTuple

from headrace.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from headrace.runtime.disk import Buffer
from headrace.storage.segment import Segment

_READ_BYTES = 4096 + HEADER_SIZE
"""The headers between two entries of the index, by the default of its interval."""
_READS_MAX = 16
_HEADER = Struct(">qi4xb6xi")
"""Of a batch: base offset, length, magic, last offset delta."""
_NOT_KNOWN = -1


class SliceEnd(NamedTuple):
    position: int
    offset: int = _NOT_KNOWN
    """That of the batch at this position; -1 if it is not known."""


def end_of_whole_batches(segment: Segment, position: int, limit: int, first_size: int) -> SliceEnd:
    """The end of the last whole batch up to `limit`, which is below the segment's size; `position` if none fits.

    A batch starts at `position`; `first_size` is its size, 0 if it is not known. May raise `OSError`.
    """
    file = segment.reader()
    entry = segment.offsets.floor_of_value(limit)
    if entry is not None and entry.value > position:
        data = file.read_cached(entry.value, min(_READ_BYTES, segment.size - entry.value))
        if data is not None:
            base_offset, size, last_delta = _peek(data, 0)
            if size and base_offset + last_delta == segment.base_offset + entry.key:
                if entry.value + size > limit:
                    return SliceEnd(entry.value, base_offset)
                return _walk(segment, entry.value, limit, data)
        first_size = first_size or _peek(file.read(position, HEADER_SIZE), 0)[1]
        if data is None and first_size and entry.value >= position + first_size:
            return SliceEnd(entry.value)
    return _walk(segment, position, limit, file.read(position, min(_READ_BYTES, segment.size - position)))


def _walk(segment: Segment, position: int, limit: int, data: Buffer) -> SliceEnd:
    """The end of the last whole batch, from a position where a batch starts; `data` is what is there."""
    file, at, left = segment.reader(), 0, _READS_MAX
    while True:
        while len(data) - at >= HEADER_SIZE:
            base_offset, size, _ = _peek(data, at)
            if not size:
                return SliceEnd(position)
            if position + size > limit:
                return SliceEnd(position, base_offset)
            position += size
            at += size
        left -= 1
        found = file.read_cached(position, min(_READ_BYTES, segment.size - position)) if left else None
        if found is None or len(found) < HEADER_SIZE:
            return SliceEnd(position)
        data, at = found, 0


def _peek(data: Buffer, at: int) -> tuple[int, int, int]:
    """Base offset, size and last offset delta of the batch in `data`; its size is 0 if there is none."""
    if len(data) - at < HEADER_SIZE:
        return -1, 0, 0
    base_offset, length, magic, last_delta = _HEADER.unpack_from(data, at)
    size = length + LOG_OVERHEAD
    return base_offset, size if magic == MAGIC and size >= HEADER_SIZE else 0, last_delta
