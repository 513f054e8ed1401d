"""Reads a compiled file, a `FileDescriptorProto`: Python's serializers register schemas in this form. Pure.

A small reader of the wire format of Protobuf, because the broker does not depend on its library. Of options, the few
that matter to readers are read.
"""

import base64
import binascii
from collections.abc import Iterator

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.protobuf.parser import MAX_NESTING
from headrace.schemas.protobuf.syntax import ProtoEnum, ProtoField, ProtoFile, ProtoMessage, ProtoMethod, ProtoService

_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_GROUP = 10
_LABELS = {1: "optional", 2: "required", 3: "repeated"}
_MAX_VARINT_BYTES = 10

Wire = tuple[int, int | bytes]
"""The number of a field, and its varint or its bytes."""


def read_descriptor(text: str) -> ProtoFile | None:
    """The file, if the text is the base64 of a compiled one; None if it is not. Raises `InvalidSchema`."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    return _file(data)


def _fields(data: bytes) -> Iterator[Wire]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise InvalidSchema("the descriptor has a field without a number")
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
        elif kind in (1, 2, 5):
            size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(data, at)
            if size > len(data) - at:
                raise InvalidSchema("the descriptor ends in the middle of a field")
            yield number, data[at : at + size]
            at += size
        else:
            raise InvalidSchema(f"the descriptor has a field of the unknown kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if at + place >= len(data):
            break
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & (2**64 - 1), at + place + 1
    raise InvalidSchema("the descriptor has a number that does not end")


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise InvalidSchema("the descriptor has a number in place of a text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidSchema("the descriptor has a text that is not UTF-8") from None


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise InvalidSchema("the descriptor has a number in place of a message")
    return value


def _number(value: int | bytes) -> int:
    """A signed 32-bit number."""
    if isinstance(value, bytes):
        raise InvalidSchema("the descriptor has a text in place of a number")
    low = value & 0xFFFF_FFFF
    return low - (1 << 32) if low & 0x8000_0000 else low


def _file(data: bytes) -> ProtoFile:
    file, public = ProtoFile(), set()
    imports: list[str] = []
    for number, value in _fields(data):
        match number:
            case 2:
                file.package = _text(value)
            case 3:
                imports.append(_text(value))
            case 10:
                public.add(_number(value))
            case 4:
                file.messages.append(_message(_bytes(value), 0))
            case 5:
                file.enums.append(_enum(_bytes(value)))
            case 6:
                file.services.append(_service(_bytes(value)))
            case 12:
                file.syntax = _text(value)
    file.imports = [("public" if place in public else "", name) for place, name in enumerate(imports)]
    if file.syntax == "proto3":
        for _, type_ in file.types():
            if isinstance(type_, ProtoMessage):
                _as_proto3(type_)
    return file


def _as_proto3(message: ProtoMessage) -> None:
    """Remove what the compiler adds: the label of single fields, and the oneof of each `optional`."""
    synthetic = {each.oneof for each in message.fields if each.options == [_SYNTHETIC]}
    for field in message.fields:
        if field.options == [_SYNTHETIC]:
            field.options, field.oneof = [], ""
        elif field.label == "optional":
            field.label = ""
    message.oneofs = [name for name in message.oneofs if name not in synthetic]


_SYNTHETIC = ("proto3_optional", "true")


def _message(data: bytes, depth: int) -> ProtoMessage:
    if depth > MAX_NESTING:
        raise InvalidSchema(f"messages are nested more than {MAX_NESTING} deep")
    message = ProtoMessage("")
    oneof_of: list[tuple[ProtoField, int]] = []
    for number, value in _fields(data):
        match number:
            case 1:
                message.name = _text(value)
            case 2:
                field, oneof = _field(_bytes(value))
                message.fields.append(field)
                if oneof is not None:
                    oneof_of.append((field, oneof))
            case 3:
                message.messages.append(_message(_bytes(value), depth + 1))
            case 4:
                message.enums.append(_enum(_bytes(value)))
            case 8:
                message.oneofs.append(next((_text(text) for inner, text in _fields(_bytes(value)) if inner == 1), ""))
            case 7:
                if (7, 1) in _fields(_bytes(value)):
                    message.options.append(("map_entry", "true"))
            case 9:
                first, last = _range(_bytes(value))
                message.reserved_ranges.append((first, last - 1))
            case 10:
                message.reserved_names.append(_text(value))
    for field, place in oneof_of:
        if not 0 <= place < len(message.oneofs):
            raise InvalidSchema(f"the field {field.name} is in a oneof that does not exist")
        field.oneof = message.oneofs[place]
        if field.options != [_SYNTHETIC]:
            field.label = ""
    _fold_maps(message)
    return message


def _fold_maps(message: ProtoMessage) -> None:
    """Write maps as maps, in place of the entry that the compiler makes of each."""
    entries = {each.name: each for each in message.messages if ("map_entry", "true") in each.options}
    for field in message.fields:
        entry = entries.get(field.type.rpartition(".")[2]) if field.label == "repeated" else None
        types = {} if entry is None else {each.name: each.type for each in entry.fields}
        if types.keys() >= {"key", "value"}:
            field.key, field.type, field.label = types["key"], types["value"], ""
            message.messages = [each for each in message.messages if each is not entry]


def _range(data: bytes) -> tuple[int, int]:
    found = {number: _number(value) for number, value in _fields(data)}
    return found.get(1, 0), found.get(2, 0)


def _field(data: bytes) -> tuple[ProtoField, int | None]:
    field, kind, oneof = ProtoField("", 0, ""), 0, None
    for number, value in _fields(data):
        match number:
            case 1:
                field.name = _text(value)
            case 3:
                field.number = _number(value)
            case 4:
                field.label = _LABELS.get(_number(value), "")
            case 5:
                kind = _number(value)
            case 6:
                field.type = _text(value)
            case 9:
                oneof = _number(value)
            case 17 if value:
                field.options.append(_SYNTHETIC)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    elif not field.type or kind == _GROUP:
        raise InvalidSchema(f"the field {field.name} has a type that is not supported: {kind}")
    return field, oneof


def _enum(data: bytes) -> ProtoEnum:
    enum = ProtoEnum("")
    for number, value in _fields(data):
        if number == 1:
            enum.name = _text(value)
        elif number == 2:
            name, place = "", 0
            for inner, part in _fields(_bytes(value)):
                if inner == 1:
                    name = _text(part)
                elif inner == 2:
                    place = _number(part)
            enum.values.append((name, place, []))
        elif number == 3 and (2, 1) in _fields(_bytes(value)):
            enum.options.append(("allow_alias", "true"))
    return enum


def _service(data: bytes) -> ProtoService:
    service = ProtoService("")
    for number, value in _fields(data):
        if number == 1:
            service.name = _text(value)
        elif number == 2:
            parts = dict(_fields(_bytes(value)))
            name, request, response = (_text(parts.get(place, b"")) for place in (1, 2, 3))
            service.methods.append(ProtoMethod(name, request, response, bool(parts.get(5)), bool(parts.get(6))))
    return service
