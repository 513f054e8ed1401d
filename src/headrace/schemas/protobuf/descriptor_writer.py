"""Writes a parsed .proto file as a compiled one, the format `serialized` of the registry. Pure."""

import base64
from collections.abc import Iterator

from headrace.schemas.protobuf.resolution import ProtobufSchema, is_enum
from headrace.schemas.protobuf.syntax import SCALARS, ProtoEnum, ProtoField, ProtoMessage

_TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_LABELS = {"": 1, "optional": 1, "required": 2, "repeated": 3}


def serialized_proto(schema: ProtobufSchema, name: str = "default.proto") -> str:
    """The compiled file in base64."""
    return base64.b64encode(compiled_proto(schema, name)).decode()


def compiled_proto(schema: ProtobufSchema, name: str) -> bytes:
    """The compiled file, a `FileDescriptorProto`."""
    file = schema.file
    parts = [_text(1, name)]
    if file.package:
        parts.append(_text(2, file.package))
    parts += [_text(3, each) for _, each in file.imports]
    parts += [_bytes(4, _message(schema, each, _joined(file.package, each.name))) for each in file.messages]
    parts += [_bytes(5, _enum(each)) for each in file.enums]
    parts += [_number(10, place) for place, (kind, _) in enumerate(file.imports) if kind == "public"]
    if file.syntax != "proto2":
        parts.append(_text(12, file.syntax))
    return b"".join(parts)


def _message(schema: ProtobufSchema, message: ProtoMessage, scope: str) -> bytes:
    optionals = [each.name for each in message.fields if each.label == "optional" and schema.file.syntax == "proto3"]
    oneofs = [*message.oneofs, *(f"_{name}" for name in optionals)]
    parts = [_text(1, message.name)]
    parts += [_bytes(2, _field(schema, each, scope, oneofs, each.name in optionals)) for each in message.fields]
    parts += [_bytes(3, _message(schema, each, _joined(scope, each.name))) for each in message.messages]
    parts += [_bytes(3, _map_entry(schema, each, scope)) for each in message.fields if each.is_map]
    parts += [_bytes(4, _enum(each)) for each in message.enums]
    if ("map_entry", "true") in message.options:
        parts.append(_bytes(7, _number(7, 1)))
    parts += [_bytes(8, _text(1, each)) for each in oneofs]
    parts += [_bytes(9, _number(1, first) + _number(2, last + 1)) for first, last in message.reserved_ranges]
    parts += [_text(10, each) for each in message.reserved_names]
    return b"".join(parts)


def _field(schema: ProtobufSchema, field: ProtoField, scope: str, oneofs: list[str], is_optional: bool) -> bytes:
    parts = [_text(1, field.name), _number(3, field.number)]
    if field.is_map:
        parts += [_number(4, 3), _number(5, _MESSAGE), _text(6, f".{scope}.{_entry_name(field.name)}")]
        return b"".join(parts)
    parts.append(_number(4, _LABELS[field.label]))
    parts += _type(schema, field.type, scope)
    oneof = f"_{field.name}" if is_optional else field.oneof
    if oneof:
        parts.append(_number(9, oneofs.index(oneof)))
    if is_optional:
        parts.append(_number(17, 1))
    return b"".join(parts)


def _type(schema: ProtobufSchema, name: str, scope: str) -> Iterator[bytes]:
    if name in SCALARS:
        yield _number(5, _TYPES[name])
        return
    full = schema.find(name, scope)
    found = schema.types.get(full) if full else None
    if is_enum(schema, name, scope):
        yield _number(5, _ENUM)
    else:
        yield _number(5, _GROUP if isinstance(found, ProtoMessage) and found.is_group else _MESSAGE)
    yield _text(6, f".{full or name.lstrip('.')}")


def _map_entry(schema: ProtobufSchema, field: ProtoField, scope: str) -> bytes:
    entry = _joined(scope, _entry_name(field.name))
    key = _text(1, "key") + _number(3, 1) + _number(4, 1) + b"".join(_type(schema, field.key, entry))
    value = _text(1, "value") + _number(3, 2) + _number(4, 1) + b"".join(_type(schema, field.type, entry))
    return b"".join((_text(1, _entry_name(field.name)), _bytes(2, key), _bytes(2, value), _bytes(7, _number(7, 1))))


def _entry_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _enum(enum: ProtoEnum) -> bytes:
    values = [_bytes(2, _text(1, name) + _number(2, number)) for name, number, _ in enum.values]
    options = [_bytes(3, _number(2, 1))] if enum.allows_aliases else []
    return b"".join((_text(1, enum.name), *values, *options))


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())
