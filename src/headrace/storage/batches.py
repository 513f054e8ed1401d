"""Reads the batches of a log file with their bytes, in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model.errors import CorruptBatch
from headrace.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from headrace.runtime.disk import DiskFile

_READ_BYTES = 1 << 20


class StoredBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview


def read_batches(file: DiskFile, position: int = 0, end: int | None = None) -> Iterator[StoredBatch]:
    """Every whole batch from `position`, where one starts, to `end` or the end of the file.

    Stops before a batch that is cut off by the end. Raises `CorruptBatch` at bytes that cannot be a batch; checksums
    are the caller's to check.
    """
    chunk, start = memoryview(b""), position
    while True:
        if start + len(chunk) - position < HEADER_SIZE:
            chunk, start = _load(file, position, end, HEADER_SIZE), position
            if not chunk:
                return
        header = read_header(chunk, position - start)
        size = header.size
        if header.magic != MAGIC or size < HEADER_SIZE:
            raise CorruptBatch(f"there is no record batch of version 2 at byte {position}")
        if start + len(chunk) - position < size:
            chunk, start = _load(file, position, end, size), position
            if not chunk:
                return
        yield StoredBatch(position, header, chunk[position - start : position - start + size])
        position += size


def _load(file: DiskFile, position: int, end: int | None, needed: int) -> memoryview:
    """Read a chunk of the file, at least the `needed` bytes; empty if the file does not have them."""
    left = (file.size() if end is None else end) - position
    if left < needed:
        return memoryview(b"")
    data = file.read(position, min(left, max(needed, _READ_BYTES)))
    file.read_ahead(position + len(data), _READ_BYTES)
    return memoryview(data if len(data) >= needed else b"")
