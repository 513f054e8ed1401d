"""Decodes a column of values to Arrow columns, in bulk, with the reason for each value that cannot be decoded.

    values.ddl                      # "`id` STRING, `amount` DOUBLE": the columns, for Spark
    values.spark_type               # "STRUCT<`id`: STRING, `amount`: DOUBLE>": the same as one type
    values.arrow                    # the same as an Arrow struct type
    found = values.decode(column)   # `column`: Arrow binary, the values of a topic
    found.columns                   # struct array: the values; null for null and for undecodable values
    found.reasons                   # string array: why a value cannot be decoded; null for all others

    # The same for Spark: two columns more.
    records.mapInArrow(values.appended, f"{schema of the records}, _v {values.spark_type}, _reason STRING")

Values are framed, if `writers` finds the writer's schema of a value by its id: a zero byte, the id in four bytes, the
value; or the value alone, if a header of the record names its schema (`headers.py`). Without `writers` all values are
of the reader's schema, and plain. An unknown id is a reason like any other, since the next value may have another id.
An undecodable value does not affect the other values. A decoder can be pickled for Spark's workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.client.message import Message
from headrace.pipelines.values.headers import SchemaHeaders, schema_headers
from headrace.pipelines.values.nodes import ColumnNode, UnreadableValue, ValueCursor, structs
from headrace.pipelines.values.rows import TOO_DEEP_FOR_COLUMNS, FaultTexts, RowCursors
from headrace.pipelines.values.schemas import SchemaSource, WriterSchema, key_text
from headrace.pipelines.values.types import SchemaError, spark_type
from headrace.records.varints import Integers, words_at
from headrace.schemas.payload.errors import NotFramed
from headrace.schemas.payload.frames import VALUE_HEADER, FramedPayload, SchemaKey, frame_of, read_frame

VALUE = "_v"
REASON = "_reason"

_PREFIX_BYTES = 5
_EMPTY = "the value is empty"
_NO_ID = "the value does not begin with a schema id (a zero byte and four more)"
_NO_KEY = f"the header {VALUE_HEADER} does not begin with the GUID or the id of a schema"
_BYTES_BEHIND = "bytes follow the value"


class SchemaRows(NamedTuple):
    """The rows of one schema, their decoder, and the decoded column."""

    rows: Integers
    node: ColumnNode
    column: pa.Array


class DecodedColumns(NamedTuple):
    """Decoded values, and the reasons of those that cannot be decoded."""

    columns: pa.StructArray
    reasons: pa.StringArray


class FramedValues(ABC):
    """A decoder for values of a format; see the module."""

    def __init__(self, writers: SchemaSource | None) -> None:
        self._writers = writers
        self._nodes: dict[SchemaKey, ColumnNode | str] = {}

    @property
    def reads_headers(self) -> bool:
        """Whether headers of records say with which schemas they were written."""
        return self._writers is not None

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType:
        """The columns as a struct."""

    @property
    @abstractmethod
    def least_bytes(self) -> int:
        """The minimum size of a plain value."""

    @abstractmethod
    def reading(self, schema: WriterSchema | None) -> ColumnNode:
        """The decoder for values of a schema; None is the reader's own. Raises `SchemaError`."""

    def behind_header(self, node: ColumnNode, rest: bytes) -> ColumnNode | str:
        """The same decoder, or a reason, for values whose schema is named in a header; `rest` follows it there."""
        return node

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{each.name}` {spark_type(each.type)}" for each in self.arrow)

    @property
    def spark_type(self) -> str:
        return spark_type(self.arrow)

    def appended(self, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each block of records with the columns `_v` and `_reason` appended.

        It has a column `value`, and `headers` where these are read.
        """
        for block in blocks:
            headers = block.column("headers") if self.reads_headers and "headers" in block.schema.names else None
            found = self.decode(block.column("value"), headers)
            columns = [*block.columns, found.columns, found.reasons]
            yield pa.RecordBatch.from_arrays(columns, names=[*block.schema.names, VALUE, REASON])

    def decode(self, values: pa.Array, headers: pa.Array | None = None) -> DecodedColumns:
        """Decode a binary column; see the module. `headers` are those of the records."""
        values = values.cast(pa.binary())
        count = len(values)
        reasons = FaultTexts()
        if not count:
            return DecodedColumns(pa.array([], self.arrow), pa.array([], pa.string()))
        bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + count + 1]
        buffer = values.buffers()[2] or pa.py_buffer(b"")
        data = np.frombuffer(buffer, np.uint8) if buffer.size else np.zeros(1, np.uint8)
        starts, ends = bounds[:-1].astype(np.int64), bounds[1:].astype(np.int64)
        rows = RowCursors(buffer, data, starts, ends, np.zeros(count, np.int64), reasons)
        nulls = np.asarray(values.is_null())
        headed = None if headers is None else schema_headers(headers)
        parts = list(self._parts(rows, nulls, headed))
        found = self._joined(parts, count)
        alone = np.flatnonzero(rows.faults == TOO_DEEP_FOR_COLUMNS)
        if len(alone):
            found = self._alone(values, rows, alone, parts, found, headed)
        bad = (rows.faults != 0) | nulls
        if not bad.any():
            return DecodedColumns(found, pa.nulls(count, pa.string()))
        texts = pa.array(reasons.texts, pa.string()).take(pa.array(rows.faults, mask=(rows.faults == 0) | nulls))
        return DecodedColumns(_with_nulls(found, self.arrow, bad), texts)

    def _parts(self, rows: RowCursors, nulls: Any, headed: SchemaHeaders | None) -> Iterator[SchemaRows]:
        for which, node in self._by_schema(rows, nulls, headed):
            if isinstance(node, str):
                mask = np.zeros(len(rows), np.bool_)
                mask[which] = True
                rows.fail(mask, node)
                continue
            part = rows if len(which) == len(rows) else rows.some(which)
            column = node.column(part)
            if (behind := part.at < part.ends).any():
                part.fail(behind, _BYTES_BEHIND)
            if part is not rows:
                rows.put_back(which, part)
            yield SchemaRows(which, node, column)

    def _by_schema(
        self, rows: RowCursors, nulls: Any, headed: SchemaHeaders | None
    ) -> Iterator[tuple[Integers, ColumnNode | str]]:
        empty = ~nulls & (rows.at == rows.ends)
        if self._writers is None:
            if empty.any() and self.least_bytes:
                rows.fail(empty, _EMPTY)
            yield np.flatnonzero(~nulls & (rows.faults == 0)), self._node(None)
            return
        keys: list[FramedPayload | None] = []
        if headed is not None:
            keys = [_header_frame(each) for each in headed.values]
            behind_header = np.zeros(len(rows), np.bool_)
            behind_header[headed.rows] = True
            if self.least_bytes:
                rows.fail(empty & behind_header, _EMPTY)
            live = ~nulls & behind_header & (rows.faults == 0)
            nulls, empty = nulls | behind_header, empty & ~behind_header
        rows.fail(empty, _EMPTY)
        unframed = (rows.ends - rows.at < _PREFIX_BYTES) | (rows.data.take(rows.at, mode="clip") != 0)
        rows.fail(unframed & ~nulls, _NO_ID)
        framed = np.flatnonzero(~nulls & (rows.faults == 0))
        ids = words_at(rows.data, rows.at[framed] + 1, ">u4")
        rows.at[framed] += _PREFIX_BYTES
        is_one = len(ids) > 0 and bool((ids == ids[0]).all())
        different = ids[:1].tolist() if is_one else np.unique(ids).tolist()
        self._writers.require([*different, *{each.schema for each in keys if each is not None}])
        for schema_id in different:
            yield framed if is_one else framed[ids == schema_id], self._node(schema_id)
        if headed is not None:
            for place, key in enumerate(keys):
                which = headed.rows[(headed.places == place) & live[headed.rows]]
                if len(which):
                    yield which, _NO_KEY if key is None else self._headed_node(key)

    def _headed_node(self, frame: FramedPayload) -> ColumnNode | str:
        node = self._node(frame.schema)
        return node if isinstance(node, str) else self.behind_header(node, frame.header_rest or b"")

    def _node(self, schema_id: SchemaKey | None) -> ColumnNode | str:
        """The decoder for values of a schema, or the reason why there is none. None is the reader's own schema."""
        key = -1 if schema_id is None else schema_id
        if key not in self._nodes:
            schema = None
            if schema_id is not None and self._writers is not None:
                schema = self._writers.by_id(schema_id)
                if schema is None:
                    return f"there is no schema of {key_text(schema_id)}"
            try:
                self._nodes[key] = self.reading(schema)
            except SchemaError as error:
                self._nodes[key] = (
                    str(error) if schema is None else f"the schema of {key_text(key)} cannot be used: {error}"
                )
        return self._nodes[key]

    def _joined(self, parts: list[SchemaRows], count: int) -> pa.Array:
        if len(parts) == 1 and len(parts[0][0]) == count:
            return parts[0][2]
        if not parts:
            return pa.nulls(count, self.arrow)
        whole = pa.concat_arrays([column for _, _, column in parts])
        places = np.concatenate([which for which, _, _ in parts])
        index = np.zeros(count, np.int64)
        index[places] = np.arange(len(places))
        missing = np.ones(count, np.bool_)
        missing[places] = False
        return whole.take(pa.array(index, mask=missing))

    def _alone(
        self,
        values: pa.Array,
        rows: RowCursors,
        alone: Integers,
        parts: list[SchemaRows],
        found: pa.Array,
        headed: SchemaHeaders | None,
    ) -> pa.Array:
        """Decode these values one by one, and insert them into the column."""
        nodes = {row: node for which, node, _ in parts for row in np.intersect1d(which, alone).tolist()}
        is_bare = np.full(len(rows), self._writers is None)
        if headed is not None:
            is_bare[headed.rows] = True
        made: list[Any] = []
        for row in alone.tolist():
            value = ValueCursor(values[row].as_py())
            value.at = 0 if is_bare[row] else _PREFIX_BYTES
            try:
                made.append(nodes[row].one(value))
                rows.faults[row] = 0 if value.at == len(value.data) else rows.reasons.number(_BYTES_BEHIND)
            except UnreadableValue as error:
                made.append(None)
                rows.faults[row] = rows.reasons.number(str(error))
        index = np.arange(len(rows))
        index[alone] = len(rows) + np.arange(len(alone))
        return pa.concat_arrays([found, pa.array(made, self.arrow)]).take(pa.array(index))


def schema_keys(messages: Iterable[Message]) -> set[SchemaKey]:
    """The schemas of framed messages by id, and by GUID where a header has it; other messages are ignored."""
    found: set[SchemaKey] = set()
    for each in messages:
        try:
            frame = frame_of(each.payload or b"", each.headers)
        except NotFramed:
            continue
        if isinstance(frame.schema, int) or frame.header_rest is not None:
            found.add(frame.schema)
    return found


def _header_frame(header: bytes) -> FramedPayload | None:
    try:
        return read_frame(b"", header)
    except NotFramed:
        return None


def _with_nulls(found: pa.Array, kind: pa.DataType, bad: Any) -> pa.Array:
    return structs(found.flatten(), kind, len(found), pa.array(bad))
