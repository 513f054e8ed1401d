"""Record batches built and read by hand, so that what the broker stores is checked by code that is not the broker's."""

import gzip
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct

import cramjam
import lz4.frame
from crc32c import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME = 0x08

_HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = -1
    offset: int = -1


@dataclass(frozen=True)
class Batch:
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def codec(self) -> int:
        return self.attributes & 7


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + _nullable(record.key) + _nullable(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode()) + _nullable(value)
    return varint(len(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, 1)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == LZ4:
        # Java consumers refuse linked blocks, which cramjam makes.
        compressed: bytes = lz4.frame.compress(data, block_linked=False)
        return compressed
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        if not data.startswith(b"\x82SNAPPY\x00"):
            return bytes(cramjam.snappy.decompress_raw(data))
        parts, at = [], 16
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            parts.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
            at += 4 + size
        return b"".join(parts)
    if codec == LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return data


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def batch(
    records: Sequence[Record | bytes],
    *,
    codec: int = NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_ms: int | None = None,
    attributes: int | None = None,
    magic: int = 2,
    count: int | None = None,
    last_offset_delta: int | None = None,
    payload: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """A batch as a producer sends it; the odd arguments are for batches that no honest producer sends."""
    whole = [record if isinstance(record, Record) else Record(record) for record in records]
    base = now_ms() if timestamp_ms is None else timestamp_ms
    times = [base if record.timestamp_ms < 0 else record.timestamp_ms for record in whole] or [base]
    if payload is None:
        encoded = (
            encode_record(record, at, when - times[0])
            for at, (record, when) in enumerate(zip(whole, times, strict=False))
        )
        payload = compress(codec, b"".join(encoded))
    count = len(whole) if count is None else count
    delta = len(whole) - 1 if last_offset_delta is None else last_offset_delta
    tail = Struct(">hiqqqhii").pack(
        codec if attributes is None else attributes,
        delta, times[0], max(times), producer_id, producer_epoch, base_sequence, count,
    ) + payload  # fmt: skip
    head = Struct(">qiibI").pack(0, 4 + 1 + 4 + len(tail), -1, magic, crc32c(tail) if crc is None else crc)
    return head + tail


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _read_nullable(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def parse(data: bytes | None) -> list[Batch]:
    """The whole batches in a fetch answer; one that is cut off at the end is left out, a wrong checksum is an error."""
    return list(_parse(data or b""))


def _parse(data: bytes) -> Iterator[Batch]:
    at = 0
    while len(data) - at >= HEADER_BYTES:
        fields = _HEADER.unpack_from(data, at)
        base_offset, length, epoch, magic, crc, attributes, delta, base_ms, max_ms, pid, pepoch, sequence, count = (
            fields
        )
        size = length + 12
        if size > len(data) - at:
            return
        assert magic == 2
        assert crc32c(data[at + 21 : at + size]) == crc
        payload = decompress(attributes & 7, data[at + HEADER_BYTES : at + size])
        appended = bool(attributes & LOG_APPEND_TIME)
        records = []
        position = 0
        for _ in range(count):
            _, position = read_varint(payload, position)
            position += 1
            time_delta, position = read_varint(payload, position)
            offset_delta, position = read_varint(payload, position)
            key, position = _read_nullable(payload, position)
            value, position = _read_nullable(payload, position)
            header_count, position = read_varint(payload, position)
            headers = []
            for _ in range(header_count):
                name, position = _read_nullable(payload, position)
                header_value, position = _read_nullable(payload, position)
                headers.append(((name or b"").decode(), header_value))
            when = max_ms if appended else base_ms + time_delta
            records.append(Record(value, key, tuple(headers), when, base_offset + offset_delta))
        assert position == len(payload)
        yield Batch(base_offset, epoch, attributes, delta, base_ms, max_ms, pid, pepoch, sequence, records, size)
        at += size


def values(data: bytes | None) -> list[bytes | None]:
    return [record.value for one in parse(data) for record in one.records]
