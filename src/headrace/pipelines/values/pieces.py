"""Bytes of many rows, made of pieces: a piece of each row for each field, joined at the end, without a loop over rows.

A column of pieces is an Arrow binary column without nulls. Where `valid` is false, a piece is empty.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.varints import Integers, varint_sizes, write_varints

Valid = npt.NDArray[np.bool_]


def constant(data: bytes, valid: Valid) -> pa.Array:
    """The same bytes in each row."""
    return _of_sizes(np.where(valid, len(data), 0), np.frombuffer(data * int(valid.sum()), np.uint8))


def varints(coded: npt.NDArray[np.uint64], valid: Valid) -> pa.Array:
    """Unsigned numbers, seven bits to a byte."""
    coded = coded if valid.all() else coded[valid]
    widths = varint_sizes(coded)
    ends = np.cumsum(widths)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    write_varints(data, ends - widths, coded, widths)
    sizes = widths
    if len(coded) < len(valid):
        sizes = np.zeros(len(valid), np.int64)
        sizes[valid] = widths
    return _of_sizes(sizes, data)


def fixed(numbers: npt.NDArray[Any], valid: Valid) -> pa.Array:
    """Numbers of a fixed size, as they are in memory."""
    width = numbers.dtype.itemsize
    data = np.ascontiguousarray(numbers if valid.all() else numbers[valid]).view(np.uint8)
    return _of_sizes(np.where(valid, width, 0), data)


def sizes_of(column: pa.Array) -> Integers:
    """The number of bytes of each row."""
    return np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)


def joined(*columns: pa.Array) -> pa.Array:
    """The pieces of each row, one behind the other."""
    return columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def grouped(lengths: Integers, items: pa.Array) -> pa.Array:
    """The pieces of so many items for each row, one behind the other."""
    places = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    bounds = np.frombuffer(items.buffers()[1], np.int32)[items.offset : items.offset + len(items) + 1]
    if not len(items):
        bounds = np.zeros(1, np.int32)
    offsets = pa.py_buffer(bounds[places].astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, offsets, items.buffers()[2]])


def valid_rows(column: pa.Array) -> Valid:
    return np.asarray(column.is_valid())


def filled(column: pa.Array, value: Any) -> npt.NDArray[Any]:
    """The numbers of a column, with `value` in place of nulls."""
    return np.asarray(pc.fill_null(column, value) if column.null_count else column)


def compact(column: pa.Array) -> pa.Array:
    """The same list or map column, whose items are exactly those of its rows."""
    if column.offset or column.null_count or len(column) == 0:
        return column.take(pa.array(np.arange(len(column))))
    return column


def item_counts(column: pa.Array) -> Integers:
    """The number of items of each list or map; 0 for null."""
    bounds = np.asarray(column.offsets).astype(np.int64)
    return np.where(valid_rows(column), np.diff(bounds), 0)


def _of_sizes(sizes: Integers, data: npt.NDArray[np.uint8]) -> pa.Array:
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(data)])
