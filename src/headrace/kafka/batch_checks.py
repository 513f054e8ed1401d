"""Integrity checks of batches that are read back from disk."""

from typing import NamedTuple

from headrace.model.errors import CorruptBatch
from headrace.records.batch import HEADER_SIZE, MAGIC, check_batch, read_header
from headrace.runtime.disk import Buffer


class BatchLimits(NamedTuple):
    """The highest end offset and leader epoch that a batch may have, as of when its slice was located."""

    end_offset: int
    leader_epoch: int


def first_damaged(data: Buffer, first_offset: int, limits: BatchLimits) -> int | None:
    """Return the offset of the first corrupt batch, or None; the last batch may be truncated.

    The checksum does not cover the base offset, length and leader epoch: those must fit the neighbours and `limits`.
    """
    position, offset = 0, first_offset
    view = memoryview(data)
    while (left := len(view) - position) >= HEADER_SIZE:
        header = read_header(view, position)
        fits = (
            offset <= header.base_offset
            and header.next_offset <= limits.end_offset
            and 0 <= header.leader_epoch <= limits.leader_epoch
            and header.magic == MAGIC
        )
        if fits and header.size > left and position:
            break
        try:
            check_batch(view, position)
        except CorruptBatch:
            return offset
        if not fits:
            return offset
        position += header.size
        offset = header.next_offset
    return None
