"""Decoders for Avro types: a tree of nodes, one per type, each of which reads a column or a single value.

See `values/nodes.py`.
"""

from dataclasses import dataclass
from decimal import Decimal
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.values.nodes import ColumnNode, UnreadableValue, ValueCursor, text_column
from headrace.pipelines.values.rows import RowCursors
from headrace.records.varints import INT32_BYTES, Integers

_DECIMAL_BYTES = 16
_MAX_MS = (2**63 - 1) // 1000


@dataclass(frozen=True)
class NullNode(ColumnNode):
    def column(self, rows: RowCursors) -> pa.Array:
        return pa.nulls(len(rows), self.arrow)

    def one(self, value: ValueCursor) -> None:
        return None


@dataclass(frozen=True)
class BooleanNode(ColumnNode):
    def column(self, rows: RowCursors) -> pa.Array:
        byte = rows.fixed("u1", self.path)
        if (wrong := byte > 1).any():
            rows.fail(wrong, f"{self.path} is neither true nor false")
        return pa.array(byte == 1)

    def one(self, value: ValueCursor) -> bool:
        [byte] = value.chunk(1, self.path)
        if byte > 1:
            raise UnreadableValue(f"{self.path} is neither true nor false")
        return byte == 1


@dataclass(frozen=True)
class IntegerNode(ColumnNode):
    """An int or a long, possibly as a time, or widened for the reader's schema."""

    max_bytes: int
    in_milliseconds: bool = False

    def column(self, rows: RowCursors) -> pa.Array:
        found = rows.numbers(self.path, self.max_bytes)
        if self.in_milliseconds:
            if (wrong := (found > _MAX_MS) | (found < -_MAX_MS)).any():
                rows.fail(wrong, f"{self.path} is a time too far away")
            found = found * 1000
        if pa.types.is_timestamp(self.arrow):
            return pa.array(found).view(self.arrow)
        if pa.types.is_date(self.arrow):
            return pa.array(found.astype(np.int32)).view(self.arrow)
        return pa.array(found.astype(self.arrow.to_pandas_dtype()))

    def one(self, value: ValueCursor) -> int | float:
        found = value.number(self.path, self.max_bytes)
        if self.in_milliseconds:
            if abs(found) > _MAX_MS:
                raise UnreadableValue(f"{self.path} is a time too far away")
            return found * 1000
        return float(found) if pa.types.is_floating(self.arrow) else found

    def skip(self, rows: RowCursors) -> None:
        rows.numbers(self.path, self.max_bytes)


@dataclass(frozen=True)
class FloatNode(ColumnNode):
    size: int

    def column(self, rows: RowCursors) -> pa.Array:
        found = rows.fixed(f"<f{self.size}", self.path)
        return pa.array(found.astype(self.arrow.to_pandas_dtype(), copy=False))

    def one(self, value: ValueCursor) -> float:
        found: float = _FLOATS[self.size].unpack(value.chunk(self.size, self.path))[0]
        return found


_FLOATS = {4: Struct("<f"), 8: Struct("<d")}


@dataclass(frozen=True)
class BytesNode(ColumnNode):
    """Bytes, a string, or a fixed, whose size is in the schema."""

    size: int | None = None

    def column(self, rows: RowCursors) -> pa.Array:
        starts, sizes = self._places(rows)
        found = rows.binary(starts, sizes)
        return text_column(found, rows, self.path) if pa.types.is_string(self.arrow) else found

    def one(self, value: ValueCursor) -> str | bytes:
        found = value.chunk(value.number(self.path) if self.size is None else self.size, self.path)
        if not pa.types.is_string(self.arrow):
            return found
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise UnreadableValue(f"{self.path} is not UTF-8") from None

    def skip(self, rows: RowCursors) -> None:
        self._places(rows)

    def _places(self, rows: RowCursors) -> tuple[Integers, Integers]:
        sizes = rows.numbers(self.path) if self.size is None else np.full(len(rows), self.size, np.int64)
        return rows.chunks(sizes, self.path)


@dataclass(frozen=True)
class DecimalNode(ColumnNode):
    """A two's complement number, most significant byte first."""

    size: int | None = None

    def column(self, rows: RowCursors) -> pa.Array:
        sizes = rows.numbers(self.path) if self.size is None else np.full(len(rows), self.size, np.int64)
        starts, sizes = rows.chunks(sizes, self.path)
        # Arrow has 16 bytes, least significant first; missing bytes extend the sign.
        signs = np.where((sizes > 0) & (rows.data.take(starts, mode="clip") >= 0x80), 0xFF, 0).astype(np.uint8)
        data = np.empty((len(rows), _DECIMAL_BYTES), np.uint8)
        for place in range(_DECIMAL_BYTES):
            written = rows.data.take(starts + sizes - 1 - place, mode="clip")
            data[:, place] = np.where(place < sizes, written, signs)
        whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(rows), [None, pa.py_buffer(data)])
        largest = pa.scalar(Decimal(self._beyond - 1), pa.decimal128(38, 0))
        smallest = pa.scalar(Decimal(1 - self._beyond), pa.decimal128(38, 0))
        wrong = np.array(pc.or_(pc.greater(whole, largest), pc.less(whole, smallest)))
        for row in np.flatnonzero(sizes > _DECIMAL_BYTES).tolist():
            number = int.from_bytes(rows.data[starts[row] : starts[row] + sizes[row]].tobytes(), "big", signed=True)
            wrong[row] = abs(number) >= self._beyond
        if wrong.any():
            rows.fail(wrong, self._too_long)
            data[wrong] = 0
        return pa.Array.from_buffers(self.arrow, len(rows), [None, pa.py_buffer(data)])

    def one(self, value: ValueCursor) -> Decimal:
        data = value.chunk(value.number(self.path) if self.size is None else self.size, self.path)
        number = int.from_bytes(data, "big", signed=True)
        if abs(number) >= self._beyond:
            raise UnreadableValue(self._too_long)
        return self._scaled(number)

    @property
    def _beyond(self) -> int:
        return int(10**self.arrow.precision)

    @property
    def _too_long(self) -> str:
        return f"{self.path} has more than {self.arrow.precision} digits"

    def _scaled(self, number: int) -> Decimal:
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -self.arrow.scale))


@dataclass(frozen=True)
class EnumNode(ColumnNode):
    """A symbol of an enum; None stands for a symbol that the reader's schema does not have."""

    symbols: tuple[str | None, ...]

    def column(self, rows: RowCursors) -> pa.Array:
        index = rows.numbers(self.path, INT32_BYTES)
        unknown = [number for number, symbol in enumerate(self.symbols) if symbol is None]
        wrong = (index < 0) | (index >= len(self.symbols)) | np.isin(index, unknown)
        if wrong.any():
            rows.fail(wrong, f"{self.path} is none of its symbols")
            index = np.where(wrong, 0, index)
        return pa.array(self.symbols, pa.string()).take(pa.array(index))

    def one(self, value: ValueCursor) -> str:
        index = value.number(self.path, INT32_BYTES)
        found = self.symbols[index] if 0 <= index < len(self.symbols) else None
        if found is None:
            raise UnreadableValue(f"{self.path} is none of its symbols")
        return found
