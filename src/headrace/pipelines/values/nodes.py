"""Decoders of values: a tree of nodes, one per type of the schema.

`ColumnNode.column` reads one value of each row into an Arrow column; its content for rows with a fault is undefined.
`ColumnNode.one` reads a single value, where columns are not worth it, and raises `UnreadableValue`. Both give the same
results.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.values.rows import RowCursors
from headrace.records.varints import INT32_BYTES, INT64_BYTES, Integers
from headrace.runtime.varint import VarintTooLong, read_varint


class UnreadableValue(Exception):
    """A value cannot be decoded; the message is the reason."""


class ValueCursor:
    """A read position in a single value."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, path: str, max_bytes: int = INT64_BYTES) -> int:
        try:
            value, self.at = read_varint(self.data, self.at, max_bytes)
        except IndexError:
            raise UnreadableValue(f"{path} is cut off") from None
        except VarintTooLong:
            bits = 32 if max_bytes == INT32_BYTES else 64
            raise UnreadableValue(f"{path} has a number of more than {bits} bits") from None
        return value

    def chunk(self, size: int, path: str) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise UnreadableValue(f"{path} is cut off")
        self.at += size
        return self.data[self.at - size : self.at]


@dataclass(frozen=True)
class ColumnNode(ABC):
    """Decoder for values of one type."""

    path: str
    """The path of the field in the value, for reasons."""
    arrow: pa.DataType

    @abstractmethod
    def column(self, rows: RowCursors) -> pa.Array: ...

    @abstractmethod
    def one(self, value: ValueCursor) -> Any: ...

    def skip(self, rows: RowCursors) -> None:
        """Skip a value that the reader's schema does not have."""
        self.column(rows)


def text_column(found: pa.Array, rows: RowCursors, path: str) -> pa.Array:
    """Bytes as a column of strings; a value that is not UTF-8 gets a fault."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_decoded(each) for each in found.to_pylist()]
        rows.fail(np.array([text is None for text in texts]), f"{path} is not UTF-8")
        return pa.array([text or "" for text in texts], pa.string())


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def structs(columns: Sequence[pa.Array], kind: pa.DataType, count: int, nulls: Any = None) -> pa.Array:
    """A column of structs, possibly without fields."""
    if not columns:
        return pa.array([{}] * count, kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)


def spread(column: pa.Array, which: Integers, count: int) -> pa.Array:
    """Spread a column over `count` rows: its values at the rows `which`, null elsewhere."""
    index = np.zeros(count, np.int64)
    index[which] = np.arange(len(which))
    missing = np.ones(count, np.bool_)
    missing[which] = False
    return column.take(pa.array(index, mask=missing))
