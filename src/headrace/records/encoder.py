"""Encodes Arrow columns to record batches, in bulk: the inverse of `columns`.

    encode(columns, timestamp_ms=clock.now_ms(), codec=Codec.LZ4)     # list of batches, ready to be produced

`columns` is a `pyarrow.RecordBatch` or `Table`, of which these columns are used:

    key        binary or string, may be left out
    value      binary or string, may be left out: then all are null
    timestamp  timestamp of any unit, may be left out; null is `timestamp_ms`
    headers    list<struct<key: string, value: binary>>, may be left out; null is none

Rows stay in their order. A batch takes as many of them as fit `target_bytes` before compression, so none is larger
than that unless a single record is. With a `base_sequence`, the batches have consecutive sequences as those of an
idempotent producer, which wrap from 2^31-1 to zero. `partitioner` decides which row goes to which partition.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.errors import InvalidRecord, RecordTooLarge
from headrace.records.batch import HEADER_SIZE, MAGIC, NO_SEQUENCE, TARGET_BYTES, TRANSACTIONAL, BatchHeader
from headrace.records.builder import seal
from headrace.records.compression import Codec, compress
from headrace.records.schema import HEADERS
from headrace.records.varints import Integers, varint_sizes, write_varints, zigzag

_SLAB_BYTES = 32 * 1024 * 1024
_LAYOUT_BYTES = 2 * 1024 * 1024
"""Few enough bytes for the CPU cache."""
_MAX_RECORD_BYTES = 1 << 30
_FRONT_BYTES_MAX = 5 + 1 + 10 + 5
"""The maximum size of the length, attributes, timestamp and offset of a record."""
_SEQUENCE_MASK = 0x7FFF_FFFF
_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def encode(
    columns: pa.RecordBatch | pa.Table,
    *,
    timestamp_ms: int,
    target_bytes: int = TARGET_BYTES,
    codec: int = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> list[bytes]:
    """Encode the rows as record batches; see the module's description."""
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if transactional else 0),
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=0,
    )
    batches = []
    for slab in _slabs(columns):
        rows = _rows(slab, timestamp_ms)
        for times, records in _batches(rows, target_bytes - HEADER_SIZE):
            header = header._replace(
                last_offset_delta=len(times) - 1,
                base_timestamp=int(times[0]),
                max_timestamp=int(times.max()),
                record_count=len(times),
            )
            batches.append(seal(header, records if codec == Codec.NONE else compress(codec, records)))
            if base_sequence != NO_SEQUENCE:
                header = header._replace(base_sequence=(header.base_sequence + len(times)) & _SEQUENCE_MASK)
    return batches


def _slabs(columns: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch | pa.Table]:
    """Split the rows into parts of many batches each, far below the 2 GiB limit of an Arrow column."""
    count = columns.num_rows
    if count > 1 and columns.nbytes + count * _FRONT_BYTES_MAX > _SLAB_BYTES:
        yield from _slabs(columns.slice(0, count // 2))
        yield from _slabs(columns.slice(count // 2))
    elif count:
        if columns.nbytes > _MAX_RECORD_BYTES:
            raise RecordTooLarge(f"a row has {columns.nbytes} bytes, a record has {_MAX_RECORD_BYTES} at the most")
        yield columns


class RecordColumns(NamedTuple):
    keys: pa.Array
    key_lengths: Integers
    """-1 for a null, as in the columns below."""
    values: pa.Array
    value_lengths: Integers
    times: Integers
    headers: pa.Array | None
    """The encoded header count and headers of each row; None if no row has any."""

    def sizes_at_most(self) -> Integers:
        """The maximum encoded size of each row, at any position in a batch."""
        sizes = varint_sizes(zigzag(self.key_lengths)) + varint_sizes(zigzag(self.value_lengths))
        sizes += np.maximum(self.key_lengths, 0) + np.maximum(self.value_lengths, 0)
        sizes += 1 if self.headers is None else _lengths(self.headers)
        earliest, latest = int(self.times.min()), int(self.times.max())
        largest = [latest - earliest, len(self.times), int(sizes.max()) + _FRONT_BYTES_MAX]
        if largest[0] >= 1 << 62:
            return sizes + _FRONT_BYTES_MAX
        return sizes + 1 + int(varint_sizes(zigzag(np.array([-number for number in largest]))).sum())

    def slice(self, first: int, end: int) -> "RecordColumns":
        return RecordColumns._make(None if column is None else column[first:end] for column in self)


def _rows(columns: pa.RecordBatch | pa.Table, timestamp_ms: int) -> RecordColumns:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        if name not in columns.schema.names:
            return pa.nulls(columns.num_rows, kind)
        found = columns.column(name)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        try:
            return found.cast(kind, safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise InvalidRecord(f"the column {name} is of type {found.type} and cannot be made {kind}") from None

    keys, key_lengths = _filled(column("key", pa.binary()))
    values, value_lengths = _filled(column("value", pa.binary()))
    times = column("timestamp", _MILLISECONDS).cast(pa.int64()).fill_null(timestamp_ms)
    return RecordColumns(
        keys, key_lengths, values, value_lengths, np.asarray(times), _header_bytes(column("headers", HEADERS))
    )


def _filled(column: pa.Array) -> tuple[pa.Array, Integers]:
    """A binary column with empty values in place of nulls, and the lengths, -1 for a null."""
    if not column.null_count:
        return column, _lengths(column)
    nulls = np.asarray(column.is_null())
    column = column.fill_null(b"")
    return column, np.where(nulls, -1, _lengths(column))


def _lengths(column: pa.Array) -> Integers:
    return np.diff(_bounds(column)).astype(np.int64)


def _bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _batches(rows: RecordColumns, room_bytes: int) -> Iterator[tuple[Integers, memoryview]]:
    """The timestamps and the records of each batch of at most `room_bytes`, or of a single row if that is larger."""
    ends = np.cumsum(rows.sizes_at_most())
    row = 0
    while row < len(ends):
        first, begin = row, int(ends[row - 1]) if row else 0
        starts: list[int] = []
        taken = begin
        while row < len(ends) and (not starts or taken - begin < _LAYOUT_BYTES):
            starts.append(row - first)
            row = max(int(np.searchsorted(ends, taken + room_bytes, side="right")), row + 1)
            taken = int(ends[row - 1])
        part = rows.slice(first, row)
        places, body = _laid_out(part, np.array(starts))
        for start, end in pairwise([*starts, row - first]):
            yield part.times[start:end], body[places[start] : places[end]]


def _laid_out(rows: RecordColumns, starts: Integers) -> tuple[npt.NDArray[np.int32], memoryview]:
    """Encode the records of these rows contiguously. Returns the start positions, then the end, and the bytes.

    `starts` are the first rows of the batches.
    """
    count = len(rows.times)
    in_batch = np.diff(np.append(starts, count))
    deltas = zigzag(np.arange(count) - np.repeat(starts, in_batch))
    time_deltas = zigzag(rows.times - np.repeat(rows.times[starts], in_batch))
    key_lengths, value_lengths = zigzag(rows.key_lengths), zigzag(rows.value_lengths)
    time_sizes, delta_sizes, key_sizes, value_sizes = map(
        varint_sizes, (time_deltas, deltas, key_lengths, value_lengths)
    )
    bodies = 1 + time_sizes + delta_sizes + key_sizes + np.maximum(rows.key_lengths, 0)
    bodies += value_sizes + np.maximum(rows.value_lengths, 0)
    bodies += 1 if rows.headers is None else _lengths(rows.headers)
    lengths = zigzag(bodies)
    length_sizes = varint_sizes(lengths)
    attributes = np.zeros(count, np.uint64), np.ones(count, np.int64)
    front = _numbers(
        (lengths, length_sizes),
        attributes,
        (time_deltas, time_sizes),
        (deltas, delta_sizes),
        (key_lengths, key_sizes),
    )
    middle = _numbers((value_lengths, value_sizes))
    tail = pa.scalar(b"\x00") if rows.headers is None else rows.headers
    joined = pc.binary_join_element_wise(front, rows.keys, middle, rows.values, tail, b"")
    return _bounds(joined), memoryview(joined.buffers()[2])


def _numbers(*columns: tuple[npt.NDArray[np.uint64], Integers]) -> pa.Array:
    """A binary column that concatenates, in each row, the varints of these columns, given with their sizes."""
    bounds = np.zeros(len(columns[0][0]) + 1, np.int32)
    np.cumsum(sum(sizes for _, sizes in columns), out=bounds[1:])
    data = np.empty(bounds[-1], np.uint8)
    places = bounds[:-1].astype(np.int64)
    for coded, sizes in columns:
        write_varints(data, places, coded, sizes)
        places += sizes
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _header_bytes(headers: pa.Array) -> pa.Array | None:
    """The encoded header count and headers of each row; None if no row has any."""
    pairs = headers.flatten()
    if not len(pairs):
        return None
    keys, values = (pc.struct_field(pairs, [index]) for index in (0, 1))
    if keys.null_count:
        raise InvalidRecord("a header has no key: give every header one")
    keys, key_lengths = _filled(keys.cast(pa.binary()))
    values, value_lengths = _filled(values)
    each = pc.binary_join_element_wise(_lone(key_lengths), keys, _lone(value_lengths), values, b"")
    counts = np.asarray(pc.list_value_length(headers).fill_null(0)).astype(np.int64)
    bounds = _bounds(each)[np.append(0, np.cumsum(counts))]
    lists = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(bounds), each.buffers()[2]])
    return pc.binary_join_element_wise(_lone(counts), lists, b"")


def _lone(numbers: Integers) -> pa.Array:
    coded = zigzag(numbers)
    return _numbers((coded, varint_sizes(coded)))
