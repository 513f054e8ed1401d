"""Decodes Avro values to columns, by the schema that each was written with. See `values/framed.py`.

    values = AvroValues(schema_text)                        # plain Avro, all of one schema
    values = AvroValues(reader_text, writers=schemas)       # framed; `schemas` has the writer's schema of each id

Values are converted to the reader's schema (`resolution`). A value must be read to its last byte.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.pipelines.avro.resolution import ROOT, reading
from headrace.pipelines.avro.schema import AvroType, columns_of, parse_schema
from headrace.pipelines.values.framed import FramedValues
from headrace.pipelines.values.nodes import ColumnNode
from headrace.pipelines.values.schemas import SchemaSource, WriterSchema
from headrace.pipelines.values.types import SchemaError


class AvroValues(FramedValues):
    """A decoder for Avro values; see the module."""

    def __init__(
        self, schema: str, *, references: Sequence[tuple[str, str]] = (), writers: SchemaSource | None = None
    ) -> None:
        super().__init__(writers)
        self._schema = schema
        self._references = tuple(references)
        self._type = columns_of(_parsed(WriterSchema(schema, self._references)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._schema, self._references, self._writers)

    @property
    def arrow(self) -> pa.DataType:
        return self._type.arrow

    @property
    def least_bytes(self) -> int:
        return self._type.least_bytes

    def reading(self, schema: WriterSchema | None) -> ColumnNode:
        written = self._type if schema is None else columns_of(_parsed(schema))
        return reading(written, self._type, ROOT)


def _parsed(schema: WriterSchema) -> AvroType:
    if schema.kind != "AVRO":
        raise SchemaError(f"it is of type {schema.kind}, not Avro")
    return parse_schema(schema.text, [text for _, text in schema.references])


@lru_cache(maxsize=32)
def _made(schema: str, references: tuple[tuple[str, str], ...], writers: SchemaSource | None) -> AvroValues:
    """One instance for all tasks of a worker with the same schemas, so that they are parsed once."""
    return AvroValues(schema, references=references, writers=writers)
