"""Rows as values of a format with schemas: the schema of their columns, and their bytes with its id. Needs no Spark."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.pipelines.avro.encoder import avro_schema, encode_avro
from headrace.pipelines.json_schema.derived import json_schema
from headrace.pipelines.protobuf.encoder import RowMessage, encode_protobuf, protobuf_schema
from headrace.pipelines.values.pieces import constant, joined, valid_rows
from headrace.pipelines.values.schemas import WriterSchema
from headrace.schemas.payload.frames import FIRST_MESSAGE, prefix

ROW = "_row"
"""The column with the rows as structs, in blocks for `RowValues.encoded`."""


@dataclass(frozen=True)
class RowValues:
    """Encodes rows; pickled for Spark's workers."""

    format: str
    prefix: bytes
    """The bytes before each value."""
    message: RowMessage | None = None

    def encoded(self, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each block with a column `value` in place of the column of rows."""
        for block in blocks:
            pairs = zip(block.schema.names, block.columns, strict=True)
            columns = [self.encode(each) if name == ROW else each for name, each in pairs]
            names = ["value" if name == ROW else name for name in block.schema.names]
            yield pa.RecordBatch.from_arrays(columns, names=names)

    def encode(self, rows: pa.Array) -> pa.Array:
        body = encode_avro(rows) if self.message is None else encode_protobuf(rows, self.message)
        return joined(constant(self.prefix, valid_rows(rows)), body)


@dataclass(frozen=True)
class RowSchema:
    """The schema of rows, and how they are written once it has an id."""

    schema: WriterSchema
    format: str
    message: RowMessage | None = None

    def with_id(self, schema_id: int) -> RowValues:
        indexes = FIRST_MESSAGE if self.message is not None else None
        return RowValues(self.format, prefix(schema_id, indexes), self.message)


def row_schema(format_: str, columns: pa.DataType, topic: str, previous: WriterSchema | None) -> RowSchema:
    """The schema of rows with these columns, a struct, as the successor of `previous`. Raises `SchemaError`."""
    if format_ == "protobuf":
        schema, message = protobuf_schema(columns, topic, previous)
        return RowSchema(schema, format_, message)
    schema = avro_schema(columns, topic, previous) if format_ == "avro" else json_schema(columns, previous)
    return RowSchema(schema, format_)
