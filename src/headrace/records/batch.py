"""The record batch, version 2: its 61-byte header over a buffer. The records inside are not decoded here.

offset  size  field
     0     8  base offset              } stamped by the broker, not covered by the checksum
     8     4  length of what follows   }
    12     4  partition leader epoch   }
    16     1  magic, 2
    17     4  CRC-32C of everything from byte 21 to the end
    21     2  attributes: bits 0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon,
              14 encrypted (only on disk and between replicas)
    23     4  last offset delta
    27     8  base timestamp
    35     8  max timestamp
    43     8  producer id
    51     2  producer epoch
    53     4  base sequence
    57     4  record count
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.model.errors import CorruptBatch, InvalidRecord

Buffer = bytes | bytearray | memoryview

_HEADER = Struct(">qiibIhiqqqhii")
_STAMP = Struct(">qii")

HEADER_SIZE = _HEADER.size
STAMP_SIZE = _STAMP.size
LOG_OVERHEAD = 12
CRC_COVERS_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
ENCRYPTED = 0x4000
"""The records are encrypted (`storage/encryption.py`). Kafka does not use this bit, and no client ever sees it."""
NO_TIMESTAMP = -1
NO_SEQUENCE = -1

TARGET_BYTES = 1_000_000
"""The target size of batches: below the default `max.message.bytes`, even if the codec adds to it."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_encrypted(self) -> bool:
        return bool(self.attributes & ENCRYPTED)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. The caller must ensure that `HEADER_SIZE` bytes are there; nothing is validated."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def check_batch(buffer: Buffer, position: int = 0, *, end: int | None = None) -> BatchHeader:
    """The header of a batch that is whole, of version 2 and has a valid checksum; else `CorruptBatch`."""
    limit = len(buffer) if end is None else end
    if limit - position < HEADER_SIZE:
        raise CorruptBatch(f"a record batch needs {HEADER_SIZE} bytes, {limit - position} are there")
    header = read_header(buffer, position)
    if header.magic != MAGIC:
        raise CorruptBatch(f"record batch version {header.magic} is not supported, only version 2")
    size = header.length + LOG_OVERHEAD
    if size < HEADER_SIZE or size > limit - position:
        raise CorruptBatch(f"a record batch claims {size} bytes, {limit - position} are there")
    if crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : position + size]) != header.crc:
        raise CorruptBatch("a record batch has a wrong checksum")
    return header


def check_counts(header: BatchHeader) -> None:
    """Raise `InvalidRecord` unless record count and last offset delta agree, as in every batch of a producer."""
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"a record batch counts {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the whole batches in `buffer`; stops before one that is cut off."""
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        size = header.length + LOG_OVERHEAD
        if size < HEADER_SIZE or size > end - position:
            return
        yield position, header
        position += size


def with_append_time(batch: Buffer, header: BatchHeader, now_ms: int) -> bytes:
    """A copy of `batch` under log-append time: attribute bit and max timestamp set, checksum recomputed."""
    copy = bytearray(batch)
    attributes = header.attributes | LOG_APPEND_TIME
    Struct(">h").pack_into(copy, 21, attributes)
    Struct(">q").pack_into(copy, 35, now_ms)
    Struct(">I").pack_into(copy, 17, crc32c(memoryview(copy)[CRC_COVERS_FROM:]))
    return bytes(copy)
