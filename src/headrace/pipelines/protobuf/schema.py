"""The messages of a Protobuf schema as a tree of types, with the Arrow type of each. Pure.

    int32, sint32, sfixed32; int64, sint64, sfixed64; uint32, fixed32     INT; BIGINT; BIGINT
    uint64, fixed64                                                       DECIMAL(20, 0)
    float, double, bool, string, bytes; enum                              the same in SQL; STRING, the name of the value
    message, repeated, map                                                STRUCT, ARRAY, MAP
    google.protobuf.Timestamp; …Value (wrappers)                          TIMESTAMP; the wrapped type

A field that is absent is null, if Protobuf tells absent from zero: messages, `optional`, members of a `oneof`, proto2.
Any other has its default: zero, empty or false. Recursive messages are refused: neither Arrow nor Spark has a type for
them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.values.types import SchemaError
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.parsed import parse_any
from headrace.schemas.protobuf.parser import parse_proto
from headrace.schemas.protobuf.resolution import ProtobufSchema, resolve_proto
from headrace.schemas.protobuf.syntax import SCALARS, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

_MAX_FIELDS: Final = 10_000
"""All fields of a message and of the messages in it."""
ROOT: Final = "the value"
"""The path of a whole message."""
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_ARROW: Final = {
    "double": pa.float64(), "float": pa.float32(), "bool": pa.bool_(), "string": pa.string(), "bytes": pa.binary(),
    "int32": pa.int32(), "sint32": pa.int32(), "sfixed32": pa.int32(), "uint32": pa.int64(), "fixed32": pa.int64(),
    "int64": pa.int64(), "sint64": pa.int64(), "sfixed64": pa.int64(), "uint64": pa.decimal128(20, 0),
    "fixed64": pa.decimal128(20, 0),
}  # fmt: skip
_WRAPPERS: Final = {
    f"google.protobuf.{name}Value": scalar
    for name, scalar in (
        ("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "uint64"), ("Int32", "int32"),
        ("UInt32", "uint32"), ("Bool", "bool"), ("String", "string"), ("Bytes", "bytes"),
    )
}  # fmt: skip
_PROVIDED: Final = """
syntax = "proto3";
package google;
message protobuf {
  message Timestamp { int64 seconds = 1; int32 nanos = 2; }
  message Duration { int64 seconds = 1; int32 nanos = 2; }
  message Empty {}
  message Any { string type_url = 1; bytes value = 2; }
  message FieldMask { repeated string paths = 1; }
  WRAPPERS
}
message type {
  message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
  message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
  message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
  message LatLng { double latitude = 1; double longitude = 2; }
}
"""
_WRAPPER_TEXTS: Final = [f"message {name[16:]} {{ {scalar} value = 1; }}" for name, scalar in _WRAPPERS.items()]


@dataclass(frozen=True)
class MessageField:
    """A field of a message."""

    name: str
    number: int
    kind: str
    """A scalar, `enum` or `message`."""
    arrow: pa.DataType
    """The type of the column: a list or a map for a repeated field."""
    is_repeated: bool = False
    has_presence: bool = False
    oneof: str = ""
    message: "MessageType | None" = None
    symbols: tuple[tuple[int, str], ...] = ()
    """The values of an enum, the default first."""

    def path_in(self, path: str) -> str:
        """The path of the field in the value, for reasons; `path` is that of its message."""
        name = f"{self.name}[]" if self.is_repeated else self.name
        return name if path == ROOT else f"{path}.{name}"

    @property
    def item(self) -> pa.DataType:
        """The type of a single value."""
        return self.message.arrow if self.message else _ARROW.get(self.kind, pa.string())


@dataclass(frozen=True)
class MessageType:
    """A message, or an entry of a map."""

    name: str
    arrow: pa.DataType
    fields: tuple[MessageField, ...]

    @property
    def is_time(self) -> bool:
        return self.name == _TIMESTAMP

    @property
    def is_wrapper(self) -> bool:
        return self.name in _WRAPPERS


def parse_protobuf(text: str, references: tuple[tuple[str, str], ...] = ()) -> ProtobufSchema:
    """Parse a .proto file, or a compiled one in base64; `SchemaError` if it is neither."""
    try:
        content: Any = parse_any("PROTOBUF", text, references, is_new=False).content
    except InvalidSchema as error:
        raise SchemaError(f"it is not a Protobuf schema: {error}") from None
    assert isinstance(content, ProtobufSchema)
    return content


def message_names(schema: ProtobufSchema) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The full name of each message of the file, with the indexes that lead to it, outer ones first."""
    pending: list[tuple[tuple[int, ...], ProtoMessage, str]]
    pending = [((place,), each, schema.file.package) for place, each in enumerate(schema.file.messages)]
    while pending:
        place, message, scope = pending.pop(0)
        name = f"{scope}.{message.name}" if scope else message.name
        yield name, place
        pending += [((*place, at), each, name) for at, each in enumerate(message.messages)]


def message_type(schema: ProtobufSchema, name: str = "") -> MessageType:
    """The type of a message, by its full name, its name without the package, or the first of the file."""
    names = [full for full, _ in message_names(schema)]
    if not names:
        raise SchemaError("the Protobuf schema has no message")
    package = f"{schema.file.package}." if schema.file.package else ""
    full = next((each for each in (name, package + name) if each in names), None) if name else names[0]
    if full is None:
        raise SchemaError(f"the Protobuf schema has no message {name}; it has {', '.join(names[:20])}")
    return _TypeBuilder(schema).message(full, ())


class _TypeBuilder:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema
        self._fields = 0
        self._syntax: Mapping[str, ProtoFile] = {
            name: file for file in (*schema.imported.values(), schema.file) for name, _ in file.types()
        }

    def message(self, full: str, inside: tuple[str, ...]) -> MessageType:
        if full in inside:
            raise SchemaError(f"the message {full} contains itself, for which Spark has no type")
        schema = self._schema if full in self._schema.types else _provided()
        found = schema.types[full]
        assert isinstance(found, ProtoMessage)
        syntax = self._syntax[full].syntax if full in self._syntax else "proto3"
        fields = tuple(self._field(schema, each, full, (*inside, full), syntax) for each in found.fields)
        if full == _TIMESTAMP:
            return MessageType(full, pa.timestamp("us", tz="UTC"), fields)
        if full in _WRAPPERS:
            return MessageType(full, fields[0].arrow, fields)
        return MessageType(full, pa.struct([(each.name, each.arrow) for each in fields]), fields)

    def _field(
        self, schema: ProtobufSchema, field: ProtoField, scope: str, inside: tuple[str, ...], syntax: str
    ) -> MessageField:
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise SchemaError(f"the Protobuf message has more than {_MAX_FIELDS} fields, with those of messages in it")
        if field.is_map:
            return self._map(schema, field, scope, inside)
        is_repeated = field.label == "repeated"
        kind, message, symbols = self._kind(schema, field.type, scope, inside)
        item = message.arrow if message else _ARROW.get(kind, pa.string())
        implicit = syntax == "proto3" and not field.label and not field.oneof and kind != "message"
        return MessageField(
            field.name,
            field.number,
            kind,
            pa.list_(item) if is_repeated else item,
            is_repeated,
            not is_repeated and not implicit,
            field.oneof,
            message,
            symbols,
        )

    def _map(self, schema: ProtobufSchema, field: ProtoField, scope: str, inside: tuple[str, ...]) -> MessageField:
        kind, message, symbols = self._kind(schema, field.type, scope, inside)
        value = MessageField(
            "value", 2, kind, message.arrow if message else _ARROW.get(kind, pa.string()), False, kind == "message",
            "", message, symbols,
        )  # fmt: skip
        key = MessageField("key", 1, field.key, _ARROW[field.key])
        entry = MessageType("", pa.struct([("key", key.arrow), ("value", value.arrow)]), (key, value))
        return MessageField(
            field.name, field.number, "message", pa.map_(key.arrow, value.arrow), is_repeated=True, message=entry
        )

    def _kind(
        self, schema: ProtobufSchema, name: str, scope: str, inside: tuple[str, ...]
    ) -> tuple[str, MessageType | None, tuple[tuple[int, str], ...]]:
        if name in SCALARS:
            return name, None, ()
        full = schema.find(name, scope) or name.lstrip(".")
        found = schema.types.get(full) or _provided().types.get(full)
        if found is None:
            raise SchemaError(f"a field of {scope} is of the type {full}, which is not read")
        if isinstance(found, ProtoEnum):
            symbols: dict[int, str] = {}
            for each, number, _ in found.values:
                symbols.setdefault(number, each)
            return "enum", None, tuple(symbols.items())
        if found.is_group:
            raise SchemaError(f"{full} is a group of proto2, which is not read")
        return "message", self.message(full, inside), ()


def _provided() -> ProtobufSchema:
    return _PROVIDED_SCHEMA


_PROVIDED_SCHEMA: Final = resolve_proto(parse_proto(_PROVIDED.replace("WRAPPERS", "\n".join(_WRAPPER_TEXTS))), {})
