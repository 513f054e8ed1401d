"""Decodes the records inside a batch. Not on the broker's hot path: compaction, key checks and tools use it.

    record   length varint, attributes 1 byte, timestamp delta varlong, offset delta varint,
             key length varint (-1: null), key, value length varint (-1: null), value,
             header count varint, then per header: key length, key, value length (-1: null), value

Integers are zigzag-coded. For any input, only a `RecordError` is raised: every length is checked against the bytes
that are left before it is used, counts are bounded by bytes, and decompression is bounded by a cap.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model.errors import CorruptBatch, DataKeyMissing, InvalidRecord
from headrace.records.batch import ENCRYPTED, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Buffer, check_batch
from headrace.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from headrace.runtime.varint import INT64_BYTES, VarintTooLong, read_varint

Headers = tuple[tuple[str, bytes | None], ...]

_MIN_RECORD_BYTES = 7
_MIN_HEADER_BYTES = 2
_MOST_NUMBER_BYTES = 9
_NULL = 1
"""A length of -1, encoded."""
_NO_HEADERS = b"\0"
_KNOWN_HEADERS = 8
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordSpan(NamedTuple):
    """The position of a record in the decompressed records of its batch; nothing is copied."""

    offset_delta: int
    timestamp_delta: int
    tail: int
    """The position after the timestamp delta: the rest does not depend on the base timestamp."""
    key_start: int
    key_end: int
    """-1 for a null key."""
    value_start: int
    value_end: int
    """-1 for a null value."""
    headers_start: int
    end: int


def iter_records(
    batch: Buffer, header: BatchHeader | None = None, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """The records of one batch. With its `header` (from `check_batch`) the checksum is not computed again.

    Records are decoded lazily: those before a malformed one are yielded before the `RecordError` is raised.
    """
    if header is None:
        header = check_batch(batch)
    yield from records_in(decompressed(batch, header, max_decompressed_bytes=max_decompressed_bytes), header)


def records_in(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records in `data`, the decompressed records of the batch with this header."""
    return map(Record._make, fields_in(data, header))


def fields_in(data: bytes, header: BatchHeader) -> Iterator[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """Like `records_in`, as plain tuples, for callers that unpack them at once."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    count = _checked_count(data, header)
    last_delta = header.last_offset_delta
    size = len(data)
    # Padding: the varints of a record are read before their bounds are checked.
    padded = data + bytes(_MOST_NUMBER_BYTES)
    known: dict[bytes, Headers] = {_NO_HEADERS: ()}
    position = 0
    previous_delta = -1
    try:
        for index in range(count):
            # Most records have no key, varints of one or two bytes, and no headers, or the same as others: those are
            # decoded here; everything else, malformed records included, by `_span`.
            at = position
            length = padded[at]
            at += 1
            if length > 0x7F:
                length = length & 0x7F | padded[at] << 7
                at += 1
            end = at + (length >> 1)
            timestamp_delta = padded[at + 1]
            delta = padded[at + 2]
            at += 3
            if delta > 0x7F:
                delta = delta & 0x7F | padded[at] << 7
                at += 1
            has_key = padded[at] != _NULL
            value_length = padded[at + 1]
            at += 2
            if value_length > 0x7F:
                value_length = value_length & 0x7F | padded[at] << 7
                at += 1
            value_end = at + (value_length >> 1)
            headers = None if value_end >= end else known.get(data[value_end:end])
            if (
                headers is None
                or has_key
                or (length | delta | value_length) & 0x4001
                or timestamp_delta & 0x81
                or end > size
                or not previous_delta < delta >> 1 <= last_delta
            ):
                span = _checked_span(data, position, index, previous_delta, last_delta)
                delta, timestamp_delta, _, key_start, key_end, at, value_end, headers_start, end = span
                key = None if key_end < 0 else data[key_start:key_end]
                headers = () if end - headers_start == 1 else _headers(data, headers_start)
                if len(known) < _KNOWN_HEADERS:
                    known[data[headers_start:end]] = headers
            else:
                delta >>= 1
                timestamp_delta >>= 1
                key = None
            previous_delta = delta
            position = end
            yield (
                base_offset + delta,
                wrap_int64(base_timestamp + timestamp_delta) if append_time is None else append_time,
                key,
                None if value_end < 0 else data[at:value_end],
                headers,
            )
    except IndexError:
        raise InvalidRecord("a record ends in the middle of a number") from None
    except VarintTooLong as error:
        raise InvalidRecord(f"a record is invalid: {error}") from None
    _check_end(data, position, count)


def wrap_int64(value: int) -> int:
    """Wrap `value` to a signed 64-bit integer: clients add timestamp deltas in such arithmetic."""
    if _INT64_MIN <= value <= _INT64_MAX:
        return value
    return (value - _INT64_MIN) % 2**64 + _INT64_MIN


def decompressed(batch: Buffer, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The decompressed records section of a batch. Raises `DataKeyMissing` if it is still encrypted."""
    if header.attributes & ENCRYPTED:
        raise DataKeyMissing(f"the batch at offset {header.base_offset} is encrypted")
    if not HEADER_SIZE <= header.size <= len(batch):
        raise CorruptBatch(f"a record batch claims {header.size} bytes, {len(batch)} are there")
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], max_decompressed_bytes)


def spans(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """The checked position of each record in `data`, the decompressed records of the batch with this header."""
    count = _checked_count(data, header)
    position = 0
    previous_delta = -1
    try:
        for index in range(count):
            span = _checked_span(data, position, index, previous_delta, header.last_offset_delta)
            previous_delta = span.offset_delta
            position = span.end
            yield span
    except IndexError:
        raise InvalidRecord("a record ends in the middle of a number") from None
    except VarintTooLong as error:
        raise InvalidRecord(f"a record is invalid: {error}") from None
    _check_end(data, position, count)


def _checked_count(data: bytes, header: BatchHeader) -> int:
    count = header.record_count
    if count < 0 or count * _MIN_RECORD_BYTES > len(data):
        raise InvalidRecord(f"a batch claims {count} records in {len(data)} bytes")
    return count


def _check_end(data: bytes, position: int, count: int) -> None:
    if position != len(data):
        raise InvalidRecord(f"{len(data) - position} bytes follow the last of {count} records")


def _checked_span(data: bytes, position: int, index: int, previous_delta: int, last_delta: int) -> RecordSpan:
    span = _span(data, position, index)
    if not previous_delta < span.offset_delta <= last_delta:
        raise InvalidRecord(
            f"record {index} of a batch has the offset delta {span.offset_delta} after {previous_delta}, "
            f"the last one being {last_delta}"
        )
    return span


def _span(data: bytes, position: int, index: int) -> RecordSpan:
    # One-byte varints, by far the most frequent, are decoded inline: compaction spends most of its time here.
    byte = data[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    end = position + length
    if length < _MIN_RECORD_BYTES - 1 or end > len(data):
        raise InvalidRecord(f"record {index} of a batch claims {length} bytes, {len(data) - position} are there")
    position += 1
    byte = data[position]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        timestamp_delta, position = read_varint(data, position, INT64_BYTES)
    tail = position
    byte = data[position]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        offset_delta, position = read_varint(data, position)
    key_start, key_end = _field(data, position, end, index, "key")
    value_start, value_end = _field(data, max(key_start, key_end), end, index, "value")
    headers_start = max(value_start, value_end)
    position = _after_headers(data, headers_start, end, index) if data[headers_start] else headers_start + 1
    if position != end:
        raise InvalidRecord(f"record {index} of a batch does not end where its length says")
    return RecordSpan(
        offset_delta, timestamp_delta, tail, key_start, key_end, value_start, value_end, headers_start, end
    )  # fmt: skip


def _after_headers(data: bytes, position: int, end: int, index: int) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count * _MIN_HEADER_BYTES <= end - position:
        raise InvalidRecord(f"record {index} of a batch claims {count} headers in {end - position} bytes")
    for _ in range(count):
        start, stop = _field(data, position, end, index, "header key")
        if stop < 0:
            raise InvalidRecord(f"record {index} of a batch has a header without a key")
        position = max(_field(data, max(start, stop), end, index, "header value"))
    return position


def _field(data: bytes, position: int, end: int, index: int, name: str) -> tuple[int, int]:
    """Start and end of a length-prefixed field; the end is -1 for null."""
    byte = data[position]
    if byte < 0x80:
        length = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        length, position = read_varint(data, position)
    if length == -1:
        return position, -1
    if length < 0 or length > end - position:
        raise InvalidRecord(f"the {name} of record {index} claims {length} bytes, {end - position} are there")
    return position, position + length


def _headers(data: bytes, position: int) -> Headers:
    """The headers at a position that `spans` has checked. Invalid UTF-8 in keys is replaced."""
    count, position = read_varint(data, position)
    end = len(data)
    headers = []
    for _ in range(count):
        start, stop = _field(data, position, end, 0, "header key")
        key = data[start:stop].decode("utf-8", "replace")
        start, stop = _field(data, stop, end, 0, "header value")
        headers.append((key, None if stop < 0 else data[start:stop]))
        position = max(start, stop)
    return tuple(headers)
