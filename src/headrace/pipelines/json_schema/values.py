"""Checks values of JSON Schemas, by the schema that each was written with. See `values/framed.py`.

The decoded column has the text of each value; Spark parses it into the columns of the reader's schema (`ddl`). A
property that the reader's schema does not have is ignored, one that a value does not have is null.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.json_schema.check import JsonCheck
from headrace.pipelines.json_schema.columns import columns_ddl, columns_of_document, parse_document
from headrace.pipelines.values.framed import FramedValues
from headrace.pipelines.values.nodes import ColumnNode, UnreadableValue, ValueCursor, structs
from headrace.pipelines.values.rows import RowCursors
from headrace.pipelines.values.schemas import SchemaSource, WriterSchema

TEXT = "text"
_TYPE = pa.struct([(TEXT, pa.string())])


class JsonSchemaValues(FramedValues):
    """A decoder for values of JSON Schemas; see the module."""

    def __init__(
        self, schema: str, *, references: Sequence[tuple[str, str]] = (), writers: SchemaSource | None = None
    ) -> None:
        super().__init__(writers)
        self._reader = WriterSchema(schema, tuple(references), "JSON")
        self._ddl = columns_ddl(columns_of_document(parse_document(schema, self._reader.references)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._reader.text, self._reader.references, self._writers)

    @property
    def arrow(self) -> pa.DataType:
        return _TYPE

    @property
    def ddl(self) -> str:
        return self._ddl

    @property
    def least_bytes(self) -> int:
        return 1

    def reading(self, schema: WriterSchema | None) -> ColumnNode:
        return CheckedText("the value", _TYPE, JsonCheck(schema or self._reader))


@dataclass(frozen=True)
class CheckedText(ColumnNode):
    """The text of a value, if it fits its schema."""

    json: JsonCheck

    def column(self, rows: RowCursors) -> pa.Array:
        starts, sizes = rows.chunks(rows.ends - rows.at, self.path)
        values = rows.binary(starts, sizes)
        texts: list[str] = []
        for place, each in enumerate(values.to_pylist()):
            try:
                texts.append(self._checked(each))
            except UnreadableValue as error:
                texts.append("")
                wrong = np.zeros(len(rows), np.bool_)
                wrong[place] = True
                rows.fail(wrong, str(error))
        return structs([pa.array(texts, pa.string())], self.arrow, len(rows))

    def one(self, value: ValueCursor) -> dict[str, str]:
        return {TEXT: self._checked(value.chunk(len(value.data) - value.at, self.path))}

    def _checked(self, data: bytes) -> str:
        self.json.check(data)
        if not data.lstrip(b" \t\r\n").startswith(b"{"):
            # Its schema may allow it, but it is not a row.
            raise UnreadableValue("the value is not a JSON object")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UnreadableValue("the value is not UTF-8") from None


@lru_cache(maxsize=32)
def _made(schema: str, references: tuple[tuple[str, str], ...], writers: SchemaSource | None) -> JsonSchemaValues:
    """One instance for all tasks of a worker with the same schemas, so that they are parsed once."""
    return JsonSchemaValues(schema, references=references, writers=writers)
