"""Scans a log file that may be damaged: separates valid batches from other bytes."""

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.model.errors import CorruptBatch
from headrace.records.batch import (
    CRC_COVERS_FROM,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_batch,
    read_header,
)
from headrace.runtime.disk import DiskFile

_WINDOW = 4 * 1024 * 1024
_SECTOR = 512
"""Bytes that a disk writes as a whole."""
_MAX_OFFSET_DELTA = 2**31 - 1
_HIGH_HALF = Struct(">I")


class Damage(NamedTuple):
    """Bytes of a log file that are not valid batches."""

    position: int
    end: int
    from_offset: int
    """The first offset that may be lost."""
    to_offset: int | None
    """The base offset of the valid batch that follows in the file; None at the end of the file."""
    reason: str


class ScannedBatch(NamedTuple):
    """A valid batch of a log file."""

    position: int
    header: BatchHeader


def scan(file: DiskFile, size: int, base_offset: int, limit_offset: int | None) -> Iterator[ScannedBatch | Damage]:
    """Yield all of a segment's file in order, as valid batches and as damage between or after them.

    Valid means: whole, version 2, right checksum, offsets that grow, from `base_offset` on and below `limit_offset`.
    """
    expected = base_offset
    position = 0
    window, window_at = b"", 0
    while position < size:
        if position + HEADER_SIZE > window_at + len(window) or position < window_at:
            window, window_at = _window(file, position, size), position
        try:
            at = position - window_at
            header = None
            if at + LOG_OVERHEAD <= len(window) and len(window) - at >= HEADER_SIZE:
                header = read_header(window, at)
                if at + header.size > len(window) and window_at != position:
                    window, window_at, at = _window(file, position, size), position, 0
            if header is None or at + header.size <= len(window):
                header = check_batch(window, at)
            else:
                _check_large(file, position, size, header)
            _check_offsets(header, expected, base_offset, limit_offset)
            if header.base_offset != expected:
                _check_jump(file, position + header.size, size, header, expected)
        except CorruptBatch as error:
            found = find_batch(file, position + 1, size, expected, base_offset, limit_offset)
            end = found.position if found else size
            yield Damage(position, end, expected, found.header.base_offset if found else None, str(error))
            position = end
            continue
        yield ScannedBatch(position, header)
        position += header.size
        expected = header.next_offset


def _window(file: DiskFile, position: int, size: int) -> bytes:
    """Read the next bytes of a file, and start to read those after them."""
    window = file.read(position, min(_WINDOW, size - position))
    file.read_ahead(position + len(window), _WINDOW)
    return window


def find_batch(
    file: DiskFile, position: int, size: int, expected: int, base_offset: int, limit_offset: int | None
) -> ScannedBatch | None:
    """The first valid batch that starts at any byte from `position` on."""
    highest = min(base_offset + _MAX_OFFSET_DELTA, limit_offset - 1 if limit_offset is not None else 2**63 - 1)
    highs = {_HIGH_HALF.pack(offset >> 32) for offset in (expected, highest)}
    # The upper half of a base offset can only have these values, and the version follows twelve bytes later. A
    # lookahead, because candidates may overlap.
    pattern = re.compile(b"(?=(?:%b).{12}%b)" % (b"|".join(map(re.escape, highs)), bytes([MAGIC])), re.DOTALL)
    while size - position >= HEADER_SIZE:
        window = _window(file, position, size)
        for match in pattern.finditer(window):
            at = match.start()
            if at + HEADER_SIZE > len(window):
                break
            header = read_header(window, at)
            if not HEADER_SIZE <= header.size <= size - position - at:
                continue
            try:
                _check_offsets(header, expected, base_offset, limit_offset)
                _check_large(file, position + at, size, header)
            except CorruptBatch:
                continue
            return ScannedBatch(position + at, header)
        if len(window) < _WINDOW:
            return None
        position += len(window) - HEADER_SIZE + 1
    return None


def is_unwritten(file: DiskFile, size: int, damage: Damage) -> bool:
    """True if the bytes look as if they never reached the disk: the file ends inside a batch, or a whole sector of them
    is zero. Other damage was done to bytes that did."""
    if damage.to_offset is None:
        head = file.read(damage.position, HEADER_SIZE)
        if len(head) < HEADER_SIZE or damage.position + read_header(head).size > size:
            return True
    position = damage.position
    while position < damage.end:
        window = file.read(position, min(_WINDOW - position % _SECTOR, damage.end - position))
        if not window:
            return True
        first = _SECTOR - position % _SECTOR
        for start in (0, *range(first, len(window), _SECTOR)):
            sector = window[start : start + (_SECTOR if start else first)]
            if sector == bytes(len(sector)):
                return True
        position += len(window)
    return False


def _check_offsets(header: BatchHeader, expected: int, base_offset: int, limit_offset: int | None) -> None:
    if header.last_offset_delta < 0 or header.base_offset < expected:
        raise CorruptBatch(f"offset {header.base_offset} comes where {expected} or more was expected")
    if header.last_offset - base_offset > _MAX_OFFSET_DELTA:
        raise CorruptBatch(f"offset {header.last_offset} is too far from the segment's base {base_offset}")
    if limit_offset is not None and header.last_offset >= limit_offset:
        raise CorruptBatch(f"offset {header.last_offset} belongs into the next segment, which starts at {limit_offset}")


def _check_jump(file: DiskFile, following: int, size: int, header: BatchHeader, expected: int) -> None:
    """Check a gap in the offsets, which is allowed but not covered by the checksum: if the next batch fits without the
    gap, this one's offset is damaged, and trusting it would make all later batches look wrong."""
    if size - following < HEADER_SIZE:
        return
    next_header = read_header(file.read(following, HEADER_SIZE))
    if next_header.magic == MAGIC and expected <= next_header.base_offset <= header.last_offset:
        raise CorruptBatch(f"offset {header.base_offset} stands before offset {next_header.base_offset}")


def _check_large(file: DiskFile, position: int, size: int, header: BatchHeader) -> None:
    """`check_batch` for a batch of any size, in bounded memory."""
    if header.magic != MAGIC:
        raise CorruptBatch(f"record batch version {header.magic} is not supported, only version 2")
    if not HEADER_SIZE <= header.size <= size - position:
        raise CorruptBatch(f"a record batch claims {header.size} bytes, {size - position} are there")
    at, end = position + CRC_COVERS_FROM, position + header.size
    crc = 0
    while at < end:
        piece = file.read(at, min(_WINDOW, end - at))
        if not piece:
            raise CorruptBatch("a record batch is cut off")
        crc = crc32c(piece, crc)
        at += len(piece)
    if crc != header.crc:
        raise CorruptBatch("a record batch has a wrong checksum")
