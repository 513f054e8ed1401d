"""Reads a compiled file, a `FileDescriptorProto`: Python's serializers register schemas in this form. Pure.

The broker does not depend on Protobuf's library. Options that extensions define are left out: see `options.py`.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

from headrace.runtime.protobuf_wire import MalformedMessage, wire_fields
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.protobuf.descriptor_writer import (
    EDITION_NUMBERS,
    EDITIONS,
    GROUP_TYPE,
    LABEL_NUMBERS,
    TYPE_NUMBERS,
    json_name,
)
from headrace.schemas.protobuf.options import (
    ENUM_OPTIONS,
    FIELD_OPTIONS,
    FILE_OPTIONS,
    MESSAGE_OPTIONS,
    METHOD_OPTIONS,
    SERVICE_OPTIONS,
    VALUE_OPTIONS,
    default_text,
    quoted,
    read_options,
)
from headrace.schemas.protobuf.parser import MAX_NESTING
from headrace.schemas.protobuf.syntax import (
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoMethod,
    ProtoOption,
    ProtoService,
)

_TYPES = {number: name for name, number in TYPE_NUMBERS.items()}
_LABELS = {number: name for name, number in LABEL_NUMBERS.items()}
_EDITIONS = {number: name for name, number in EDITION_NUMBERS.items()}


def read_descriptor(text: str) -> ProtoFile | None:
    """The file, if the text is the base64 of a compiled one; None if it is not. Raises `InvalidSchema`."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        return _file(data)
    except MalformedMessage as error:
        raise InvalidSchema(f"the descriptor cannot be read: {error}") from None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number of each field, and its number or its bytes."""
    for number, _, value in wire_fields(data):
        yield number, value if isinstance(value, int) else bytes(value)


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
    file, kinds, edition = ProtoFile(), dict[int, str](), 0
    imports: list[str] = []
    for number, value in _fields(data):
        match number:
            case 2:
                file.package = _text(value)
            case 3:
                imports.append(_text(value))
            case 4:
                file.messages.append(_message(_bytes(value), 0))
            case 5:
                file.enums.append(_enum(_bytes(value)))
            case 6:
                file.services.append(_service(_bytes(value)))
            case 7:
                _add_extension(file.extends, file.messages, _bytes(value))
            case 8:
                file.options = read_options(_bytes(value), FILE_OPTIONS)
            case 10 | 11:
                kinds[_number(value)] = "public" if number == 10 else "weak"
            case 12:
                file.syntax = _text(value)
            case 14:
                edition = _number(value)
    file.imports = [(kinds.get(place, ""), name) for place, name in enumerate(imports)]
    if file.syntax == EDITIONS:
        file.is_edition, file.syntax = True, _EDITIONS.get(edition, str(edition))
    if file.syntax == "proto3" or file.is_edition:
        for _, type_ in file.types():
            if isinstance(type_, ProtoMessage):
                _without_labels(type_)
    return file


def _without_labels(message: ProtoMessage) -> None:
    """Remove what the compiler adds: the label of single fields, and the oneof of each `optional`."""
    synthetic = {each.oneof for each in message.fields if _SYNTHETIC in each.options}
    for field in message.fields:
        if _SYNTHETIC in field.options:
            field.options.remove(_SYNTHETIC)
            field.oneof = ""
        elif field.label == "optional":
            field.label = ""
    message.oneofs = [name for name in message.oneofs if name not in synthetic]


_SYNTHETIC = ("proto3_optional", "true")


def _message(data: bytes, depth: int) -> ProtoMessage:
    if depth > MAX_NESTING:
        raise InvalidSchema(f"messages are nested more than {MAX_NESTING} deep")
    message = ProtoMessage("")
    fields: list[_ReadField] = []
    for number, value in _fields(data):
        match number:
            case 1:
                message.name = _text(value)
            case 2:
                fields.append(_field(_bytes(value)))
            case 3:
                message.messages.append(_message(_bytes(value), depth + 1))
            case 4:
                message.enums.append(_enum(_bytes(value)))
            case 5:
                message.extension_ranges.append(_range(_bytes(value)))
            case 6:
                _add_extension(message.extends, message.messages, _bytes(value))
            case 7:
                message.options = read_options(_bytes(value), MESSAGE_OPTIONS)
            case 8:
                message.oneofs.append(next((_text(text) for inner, text in _fields(_bytes(value)) if inner == 1), ""))
            case 9:
                message.reserved_ranges.append(_range(_bytes(value)))
            case 10:
                message.reserved_names.append(_text(value))
    for each in fields:
        message.fields.append(_placed(each, message))
    _fold_maps(message)
    return message


def _placed(read: "_ReadField", message: ProtoMessage) -> ProtoField:
    """A field in its message: in its oneof, or with the message of its group."""
    field = read.field
    if read.is_group:
        _mark_group(field, message.messages)
    if read.oneof is not None:
        if not 0 <= read.oneof < len(message.oneofs):
            raise InvalidSchema(f"the field {field.name} is in a oneof that does not exist")
        field.oneof = message.oneofs[read.oneof]
        if _SYNTHETIC not in field.options:
            field.label = ""
    return field


def _mark_group(field: ProtoField, messages: list[ProtoMessage]) -> None:
    """Write a group as one, with the message that it defines."""
    name = field.type.rpartition(".")[2]
    found = next((each for each in messages if each.name == name), None)
    if found is None:
        raise InvalidSchema(f"the message of the group {field.name} is not defined beside it")
    found.is_group, field.type = True, name


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
    """First and last number; the compiler stores the one after the last."""
    found = {number: _number(value) for number, value in _fields(data) if isinstance(value, int)}
    return found.get(1, 0), found.get(2, 0) - 1


def _add_extension(extends: list[ProtoExtend], messages: list[ProtoMessage], data: bytes) -> None:
    """Add an extension, to the others of the same message if they come just before it."""
    read = _field(data)
    if read.is_group:
        _mark_group(read.field, messages)
    if not extends or extends[-1].message != read.extended:
        extends.append(ProtoExtend(read.extended))
    extends[-1].fields.append(read.field)


class _ReadField(NamedTuple):
    field: ProtoField
    oneof: int | None
    extended: str
    """The message that an extension extends."""
    is_group: bool


def _field(data: bytes) -> _ReadField:
    field, kind, oneof, extended = ProtoField("", 0, ""), 0, None, ""
    default = shown = None
    for number, value in _fields(data):
        match number:
            case 1:
                field.name = _text(value)
            case 2:
                extended = _text(value)
            case 3:
                field.number = _number(value)
            case 4:
                field.label = _LABELS.get(_number(value), "")
            case 5:
                kind = _number(value)
            case 6:
                field.type = _text(value)
            case 7:
                default = _text(value)
            case 8:
                field.options += read_options(_bytes(value), FIELD_OPTIONS)
            case 9:
                oneof = _number(value)
            case 10:
                shown = _text(value)
            case 17 if value:
                field.options.append(_SYNTHETIC)
    field.type = _TYPES.get(kind, field.type)
    if not field.type:
        raise InvalidSchema(f"the field {field.name} has a type that is not supported: {kind}")
    field.options += _pseudo_options(field, default, shown)
    return _ReadField(field, oneof, extended, kind == GROUP_TYPE)


def _pseudo_options(field: ProtoField, default: str | None, shown: str | None) -> Iterator[ProtoOption]:
    """What a .proto file writes among the options of a field."""
    if default is not None:
        yield "default", default_text(default, field.type)
    if shown is not None and shown != json_name(field.name):
        yield "json_name", quoted(shown.encode())


def _enum(data: bytes) -> ProtoEnum:
    enum = ProtoEnum("")
    for number, value in _fields(data):
        match number:
            case 1:
                enum.name = _text(value)
            case 2:
                enum.values.append(_value(_bytes(value)))
            case 3:
                enum.options = read_options(_bytes(value), ENUM_OPTIONS)
            case 4:
                first, last = _range(_bytes(value))
                enum.reserved_ranges.append((first, last + 1))
            case 5:
                enum.reserved_names.append(_text(value))
    return enum


def _value(data: bytes) -> tuple[str, int, list[ProtoOption]]:
    name, place, options = "", 0, list[ProtoOption]()
    for number, value in _fields(data):
        match number:
            case 1:
                name = _text(value)
            case 2:
                place = _number(value)
            case 3:
                options = read_options(_bytes(value), VALUE_OPTIONS)
    return name, place, options


def _service(data: bytes) -> ProtoService:
    service = ProtoService("")
    for number, value in _fields(data):
        match number:
            case 1:
                service.name = _text(value)
            case 2:
                service.methods.append(_method(_bytes(value)))
            case 3:
                service.options = read_options(_bytes(value), SERVICE_OPTIONS)
    return service


def _method(data: bytes) -> ProtoMethod:
    parts = dict(_fields(data))
    name, request, response = (_text(parts.get(place, b"")) for place in (1, 2, 3))
    options = read_options(_bytes(parts.get(4, b"")), METHOD_OPTIONS)
    return ProtoMethod(name, request, response, bool(parts.get(5)), bool(parts.get(6)), options)
