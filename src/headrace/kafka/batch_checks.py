"""Whether batches that lay on disk are still what was written."""

from typing import NamedTuple

from headrace.model.errors import CorruptBatch
from headrace.records.batch import HEADER_SIZE, MAGIC, check_batch, read_header
from headrace.runtime.disk import Buffer


class BatchLimits(NamedTuple):
    """Of what a batch can be, as of when it was looked for."""

    end_offset: int
    leader_epoch: int


def first_damaged(data: Buffer, first_offset: int, limits: BatchLimits) -> int | None:
    """The offset of the first batch that is not as it was written; the last one may be cut off.

    The checksum does not cover the offset, the length and the leader epoch: those must fit what is around them.
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
