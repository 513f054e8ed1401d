"""Decodes record batches to Arrow columns, in bulk: numpy finds and reads every field of many records at once.

    for batch in decode(records, topic="orders", partition=3, first_offset=1200):
        ...                                       # pyarrow.RecordBatch of `schema()`

`records` are the records of one partition in a Fetch response. The columns are those of Spark's Kafka source, so Spark
takes the result without conversion:

    key            binary         null where the record has none
    value          binary         null for a tombstone
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[us, UTC]   null where the time does not fit microseconds
    timestampType  int32          0 the producer's time, 1 the broker's
    headers        list<struct<key: string, value: binary>>   with `headers=True`; null where the record has none

Left out are control batches, records outside `first_offset` and `end_offset`, a batch that is cut off at the end
of the response, and, where `aborted` lists the aborted transactions of the response (read_committed), theirs. Batches
that compaction has emptied yield nothing. `next_offset` returns the offset at which the next fetch begins.

For any input, the result is right or a `RecordError` is raised: checksums are verified, every length is checked
against its record before it is used, and a chunk in which the fast path finds an error goes to the slow path, which
reads record by record and raises the exact reason. Each Arrow batch holds some ten thousand records, or about
`chunk_bytes` of them, so that a buffer of any size is decoded in bounded memory; a single record batch is never split.

The inverse is `encode` in `encoder`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.model.errors import InvalidRecord, RecordError
from headrace.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, Buffer
from headrace.records.compression import Codec
from headrace.records.encoder import encode
from headrace.records.fetched import INT64_MAX, AbortedTransaction, FetchedBatch, batches_in, next_offset, unreadable
from headrace.records.fields import BatchRecords, Headers, read_fields, read_headers
from headrace.records.reader import Record, decompressed, records_in
from headrace.records.schema import HEADERS, TIMESTAMP, schema
from headrace.records.varints import Integers

__all__ = ["CHUNK_BYTES", "AbortedTransaction", "decode", "encode", "next_offset", "schema"]

CHUNK_BYTES = 16 * 1024 * 1024
CHUNK_RECORDS = 32 * 1024
"""Enough records at once for numpy to pay off, few enough for the CPU cache; see `bench/`."""

_MAX_MS = INT64_MAX // 1000


class Chunk(NamedTuple):
    """Batches that are decoded together: `sections` of a buffer of decompressed records."""

    buffer: Buffer
    sections: list[BatchRecords]


def decode(
    buffer: Buffer,
    *,
    topic: str,
    partition: int,
    first_offset: int = 0,
    end_offset: int | None = None,
    aborted: Sequence[AbortedTransaction] | None = None,
    headers: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records of `buffer` from `first_offset` on and below `end_offset`, as Arrow batches; none of them is empty.

    `aborted` is the list of the Fetch response under read_committed; None means read_uncommitted.
    """
    below = INT64_MAX if end_offset is None else end_offset
    for chunk in _chunks(buffer, batches_in(memoryview(buffer), first_offset, below, aborted), chunk_bytes):
        try:
            columns = _fast(chunk, first_offset, below, headers)
        except InvalidRecord:
            columns = _slow(chunk, first_offset, below, headers)
        if columns is not None:
            count = len(columns.key)
            names = pa.repeat(pa.scalar(topic, pa.string()), count)
            numbers = pa.repeat(pa.scalar(partition, pa.int32()), count)
            arrays = [columns.key, columns.value, names, numbers, *columns[2:]]
            yield pa.RecordBatch.from_arrays(arrays[: len(schema(headers=headers))], schema=schema(headers=headers))


def _chunks(buffer: Buffer, batches: Iterable[FetchedBatch], chunk_bytes: int) -> Iterator[Chunk]:
    """Group adjacent batches into large chunks: uncompressed batches in place, others decompressed."""
    for codec_used, run in groupby(batches, lambda batch: batch.header.attributes & CODEC_MASK != Codec.NONE):
        yield from (_unpacked if codec_used else _in_place)(buffer, run, chunk_bytes)


def _in_place(buffer: Buffer, batches: Iterable[FetchedBatch], chunk_bytes: int) -> Iterator[Chunk]:
    sections: list[BatchRecords] = []
    records = 0
    for start, end, header in batches:
        if sections and (end - sections[0].start > chunk_bytes or records >= CHUNK_RECORDS):
            yield Chunk(buffer, sections)
            sections, records = [], 0
        sections.append(BatchRecords(start + HEADER_SIZE, end, header))
        records += header.record_count
    if sections:
        yield Chunk(buffer, sections)


def _unpacked(buffer: Buffer, batches: Iterable[FetchedBatch], chunk_bytes: int) -> Iterator[Chunk]:
    view = memoryview(buffer)
    parts: list[bytes] = []
    sections: list[BatchRecords] = []
    size = records = 0
    for start, end, header in batches:
        try:
            part = decompressed(view[start:end], header)
        except RecordError as error:
            raise unreadable(error, header) from None
        parts.append(part)
        sections.append(BatchRecords(size, size + len(part), header))
        size += len(part)
        records += header.record_count
        if size >= chunk_bytes or records >= CHUNK_RECORDS:
            yield Chunk(b"".join(parts), sections)
            parts, sections, size, records = [], [], 0, 0
    if sections:
        yield Chunk(b"".join(parts), sections)


# Their records


class Columns(NamedTuple):
    """The columns whose values differ from record to record."""

    key: pa.Array
    value: pa.Array
    offset: pa.Array
    timestamp: pa.Array
    timestamp_type: pa.Array
    headers: pa.Array | None


def _fast(chunk: Chunk, first_offset: int, below: int, headers: bool) -> Columns | None:
    fields = read_fields(chunk.buffer, chunk.sections)
    if fields.offsets[0] < first_offset or fields.offsets[-1] >= below:
        fields = fields.where((fields.offsets >= first_offset) & (fields.offsets < below))
        if not len(fields.offsets):
            return None
    origin = chunk.sections[0].start
    data = pa.py_buffer(chunk.buffer).slice(origin)
    return Columns(
        pieces(data, fields.key_starts - origin, fields.key_lengths),
        pieces(data, fields.value_starts - origin, fields.value_lengths),
        pa.array(fields.offsets),
        _timestamps(fields.timestamps_ms),
        pa.array(fields.timestamp_types),
        _headers(data, origin, read_headers(chunk.buffer, fields)) if headers else None,
    )


def pieces(data: pa.Buffer, starts: Integers, lengths: Integers) -> pa.Array:
    """A binary column of slices of `data`, in the order of their positions; a length of -1 is a null.

    In an Arrow array of slice, gap, slice, gap, … over `data` without a copy, the slices are every other element: one
    `take` copies them all.
    """
    count = len(starts)
    nulls = lengths < 0
    has_nulls = nulls.any()
    if has_nulls and nulls.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    np.add(starts, np.maximum(lengths, 0) if has_nulls else lengths, out=bounds[1::2], casting="unsafe")
    alternating = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), data])
    return alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=nulls if has_nulls else None))


def _timestamps(milliseconds: Integers) -> pa.Array:
    outside = None
    if milliseconds.max() > _MAX_MS or milliseconds.min() < -_MAX_MS:
        outside = (milliseconds > _MAX_MS) | (milliseconds < -_MAX_MS)
    return pa.array(milliseconds * 1000, pa.int64(), mask=outside).view(TIMESTAMP)


def _headers(data: pa.Buffer, origin: int, headers: Headers) -> pa.Array:
    """Lists of headers; null for a record without any."""
    if not len(headers.key_starts):
        return pa.nulls(len(headers.counts), HEADERS)
    keys = pieces(data, headers.key_starts - origin, headers.key_lengths)
    values = pieces(data, headers.value_starts - origin, headers.value_lengths)
    bounds = np.zeros(len(headers.counts) + 1, np.int32)
    np.cumsum(headers.counts, out=bounds[1:])
    pairs = pa.StructArray.from_arrays([_text(keys), values], fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=HEADERS, mask=pa.array(headers.counts == 0))


def _text(keys: pa.Array) -> pa.Array:
    """Header keys as strings; invalid UTF-8 is replaced."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _slow(chunk: Chunk, first_offset: int, below: int, headers: bool) -> Columns | None:
    """Like `_fast`, record by record; raises the exact reason if a record is malformed."""
    records: list[Record] = []
    types: list[int] = []
    view = memoryview(chunk.buffer)
    for start, end, header in chunk.sections:
        try:
            found = [
                record for record in records_in(bytes(view[start:end]), header) if first_offset <= record.offset < below
            ]
        except RecordError as error:
            raise unreadable(error, header) from None
        records += found
        types += [1 if header.attributes & LOG_APPEND_TIME else 0] * len(found)
    if not records:
        return None
    offsets, times, keys, values, headers_of = zip(*records, strict=True)
    return Columns(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(offsets, pa.int64()),
        _timestamps(np.array(times, np.int64)),
        pa.array(types, pa.int32()),
        pa.array([[{"key": key, "value": value} for key, value in each] or None for each in headers_of], HEADERS)
        if headers
        else None,
    )
