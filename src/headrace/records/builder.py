"""Builds record batches: new ones from records, and the compacted form of an existing one."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct

from crc32c import crc32c

from headrace.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)
from headrace.records.compression import compress
from headrace.records.reader import Record, RecordSpan, wrap_int64
from headrace.runtime.varint import encode_varint

_HEADER = Struct(">qiibIhiqqqhii")
_CRC = Struct(">I")
_CRC_AT = 17


def build_batch(
    records: Iterable[Record],
    *,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    log_append_time_ms: int | None = None,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build a batch of these records, as a producer does.

    Records get consecutive offsets from `base_offset` on; their own `offset` is ignored. With
    `log_append_time_ms` the batch has log-append time, and every record reads with that timestamp.
    """
    records = list(records)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    body = b"".join([_record(delta, base_timestamp, record) for delta, record in enumerate(records)])
    max_timestamp = log_append_time_ms
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time_ms is not None else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=max(len(records) - 1, 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(header, compress(codec, body))


def retain(
    header: BatchHeader, data: bytes, retained: Sequence[RecordSpan], *, delete_horizon_ms: int | None = None
) -> bytes:
    """The compacted batch, with only the records at `retained` of its decompressed records `data`.

    Offsets, the last offset delta, the producer's sequence, the codec and each record's timestamp stay. A delete
    horizon, once set, stays too; a new one goes into the base timestamp, where Kafka stores it, and the records'
    deltas are recomputed against it. If no record is retained this is an empty batch, which only records that these
    offsets and sequences were used.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if not retained:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        return seal(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
    shift = 0
    if delete_horizon_ms is not None and not attributes & DELETE_HORIZON:
        attributes |= DELETE_HORIZON
        shift = base_timestamp - delete_horizon_ms
        base_timestamp = delete_horizon_ms
    max_timestamp = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = max(wrap_int64(header.base_timestamp + span.timestamp_delta) for span in retained)
    body = b"".join(
        _sized(b"\x00" + _varint[wrap_int64(span.timestamp_delta + shift)] + data[span.tail : span.end])
        for span in retained
    )
    header = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(retained)
    )
    return seal(header, compress(header.codec, body))


def seal(header: BatchHeader, body: Buffer) -> bytes:
    """Assemble a batch of this header and these (compressed) records, with length and checksum filled in."""
    head = bytearray(_HEADER.pack(*header._replace(length=HEADER_SIZE - LOG_OVERHEAD + len(body), crc=0)))
    _CRC.pack_into(head, _CRC_AT, crc32c(body, crc32c(memoryview(head)[CRC_COVERS_FROM:])))
    return b"".join((head, body))


def _record(offset_delta: int, base_timestamp: int, record: Record) -> bytes:
    """Encode one record with its length. All in one function: most of the cost of a small message is here."""
    _, timestamp, key, value, headers = record
    timestamp_delta = 0 if timestamp == base_timestamp else wrap_int64(timestamp - base_timestamp)
    parts = [b"\x00", _varint[timestamp_delta], _varint[offset_delta]]
    for data in (key, value):
        parts += (_NULL,) if data is None else (_varint[len(data)], data)
    parts.append(_varint[len(headers)])
    for name, data in headers:
        parts.append(_header_name(name))
        parts += (_NULL,) if data is None else (_varint[len(data)], data)
    return _sized(b"".join(parts))


def _sized(body: bytes) -> bytes:
    return _varint[len(body)] + body


class _Varints(dict[int, bytes]):
    """Encoded varints; those of small, frequent numbers are precomputed."""

    def __missing__(self, value: int) -> bytes:
        return encode_varint(value)


_varint = _Varints({value: encode_varint(value) for value in range(2048)})
_NULL = encode_varint(-1)


@lru_cache(maxsize=1024)
def _header_name(name: str) -> bytes:
    """Encode a header name. Cached: many records share few names."""
    return _sized(name.encode())
