"""Decodes Protobuf values to columns. See `values/framed.py`.

    values = ProtobufValues(proto_text, message="shop.Order")    # plain messages
    values = ProtobufValues(proto_text, writers=schemas)         # framed: id, indexes of the message, message

Fields are matched by their number, as Protobuf does, so the writer's schema only says which message a value is: it must
be the reader's, by its full name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.protobuf.columns import MessageNode
from headrace.pipelines.protobuf.schema import ROOT, message_names, message_type, parse_protobuf
from headrace.pipelines.values.framed import FramedValues
from headrace.pipelines.values.nodes import ColumnNode, UnreadableValue, ValueCursor
from headrace.pipelines.values.rows import RowCursors
from headrace.pipelines.values.schemas import SchemaSource, WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.runtime.varint import encode_varint
from headrace.schemas.payload.frames import write_indexes


class ProtobufValues(FramedValues):
    """A decoder for Protobuf values; see the module."""

    def __init__(
        self,
        schema: str,
        *,
        references: Sequence[tuple[str, str]] = (),
        message: str = "",
        writers: SchemaSource | None = None,
    ) -> None:
        super().__init__(writers)
        self._schema = schema
        self._references = tuple(references)
        self._message = message
        self._type = message_type(parse_protobuf(schema, self._references), message)
        if not pa.types.is_struct(self._type.arrow):
            raise SchemaError(f"{self._type.name} has no columns: name another message")

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._schema, self._references, self._message, self._writers)

    @property
    def arrow(self) -> pa.DataType:
        return self._type.arrow

    @property
    def least_bytes(self) -> int:
        return 0

    def reading(self, schema: WriterSchema | None) -> ColumnNode:
        message = MessageNode(ROOT, self.arrow, self._type)
        if schema is None:
            return message
        if schema.kind != "PROTOBUF":
            raise SchemaError(f"it is of type {schema.kind}, not Protobuf")
        written = dict(message_names(parse_protobuf(schema.text, schema.references)))
        if self._type.name not in written:
            raise SchemaError(f"it has no message {self._type.name}")
        return IndexedMessage(ROOT, self.arrow, message, _prefixes(written[self._type.name]))

    def behind_header(self, node: ColumnNode, rest: bytes) -> ColumnNode | str:
        assert isinstance(node, IndexedMessage)
        return node.message if rest.startswith(node.prefixes) else node.other


def _prefixes(place: tuple[int, ...]) -> tuple[bytes, ...]:
    """How the indexes of a message can be written: their count and each; one zero byte for the first message."""
    whole = b"".join(map(encode_varint, (len(place), *place)))
    return tuple({write_indexes(place): None, whole: None})


@dataclass(frozen=True)
class IndexedMessage(ColumnNode):
    """A message after the indexes that say which one it is."""

    message: MessageNode
    prefixes: tuple[bytes, ...]

    def column(self, rows: RowCursors) -> pa.Array:
        start = rows.at
        rows.at = start.copy()
        matched = np.zeros(len(rows), np.bool_)
        for prefix in self.prefixes:
            fits = ~matched & (rows.ends - start >= len(prefix))
            for place, byte in enumerate(prefix):
                fits &= rows.data.take(start + place, mode="clip") == byte
            rows.at[fits] += len(prefix)
            matched |= fits
            if matched.all():
                break
        else:
            rows.fail(~matched, self.other)
        return self.message.column(rows)

    def one(self, value: ValueCursor) -> Any:
        for prefix in self.prefixes:
            if value.data.startswith(prefix, value.at):
                value.at += len(prefix)
                return self.message.one(value)
        raise UnreadableValue(self.other)

    @property
    def other(self) -> str:
        return f"the value is another message than {self.message.type.name}"


@lru_cache(maxsize=32)
def _made(
    schema: str, references: tuple[tuple[str, str], ...], message: str, writers: SchemaSource | None
) -> ProtobufValues:
    """One instance for all tasks of a worker with the same schemas, so that they are parsed once."""
    return ProtobufValues(schema, references=references, message=message, writers=writers)
