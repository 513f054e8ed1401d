"""Writes a parsed .proto file as a compiled one, the format `serialized` of the registry. Pure.

It has what protoc writes, but for options that extensions define: see `options.py`.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.runtime.protobuf_wire import bytes_field, number_field, text_field
from headrace.schemas.protobuf.options import (
    ENUM_OPTIONS,
    FIELD_OPTIONS,
    FILE_OPTIONS,
    MESSAGE_OPTIONS,
    METHOD_OPTIONS,
    SERVICE_OPTIONS,
    VALUE_OPTIONS,
    OptionTable,
    compiled_default,
    unescaped,
    written_options,
)
from headrace.schemas.protobuf.resolution import ProtobufSchema, is_enum
from headrace.schemas.protobuf.syntax import (
    SCALARS,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoMessage,
    ProtoMethod,
    ProtoOption,
    ProtoService,
)

TYPE_NUMBERS: Final = {
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
GROUP_TYPE, MESSAGE_TYPE, ENUM_TYPE = 10, 11, 14
LABEL_NUMBERS: Final = {"optional": 1, "required": 2, "repeated": 3}
EDITION_NUMBERS: Final = {"2023": 1000, "2024": 1001}
EDITIONS: Final = "editions"


def serialized_proto(schema: ProtobufSchema, name: str = "default.proto") -> str:
    """The compiled file in base64."""
    return base64.b64encode(compiled_proto(schema, name)).decode()


def compiled_proto(schema: ProtobufSchema, name: str) -> bytes:
    """The compiled file, a `FileDescriptorProto`."""
    file = schema.file
    parts = [text_field(1, name)]
    if file.package:
        parts.append(text_field(2, file.package))
    parts += [text_field(3, each) for _, each in file.imports]
    parts += [bytes_field(4, _message(schema, each, _joined(file.package, each.name))) for each in file.messages]
    parts += [bytes_field(5, _enum(each)) for each in file.enums]
    parts += [bytes_field(6, _service(schema, each)) for each in file.services]
    parts += [bytes_field(7, each) for each in _extensions(schema, file.extends, file.package)]
    parts += _options(8, file.options, FILE_OPTIONS)
    for number, wanted in ((10, "public"), (11, "weak")):
        parts += [number_field(number, place) for place, (kind, _) in enumerate(file.imports) if kind == wanted]
    if file.is_edition:
        parts += [text_field(12, EDITIONS), number_field(14, EDITION_NUMBERS.get(file.syntax, 0))]
    elif file.syntax != "proto2":
        parts.append(text_field(12, file.syntax))
    return b"".join(parts)


def json_name(name: str) -> str:
    """The name of a field in JSON: without underscores, the letter after one in upper case."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def _options(number: int, options: Iterable[ProtoOption], table: OptionTable) -> Iterator[bytes]:
    written = written_options(options, table)
    if written:
        yield bytes_field(number, written)


def _message(schema: ProtobufSchema, message: ProtoMessage, scope: str) -> bytes:
    optionals = [each.name for each in message.fields if each.label == "optional" and schema.file.syntax == "proto3"]
    oneofs = [*message.oneofs, *(f"_{name}" for name in optionals)]
    parts = [text_field(1, message.name)]
    parts += [bytes_field(2, _field(schema, each, scope, oneofs, each.name in optionals)) for each in message.fields]
    parts += [bytes_field(3, each) for each in _nested(schema, message, scope)]
    parts += [bytes_field(4, _enum(each)) for each in message.enums]
    parts += [
        bytes_field(5, number_field(1, low) + number_field(2, high + 1)) for low, high in message.extension_ranges
    ]
    parts += [bytes_field(6, each) for each in _extensions(schema, message.extends, scope)]
    parts += _options(7, message.options, MESSAGE_OPTIONS)
    parts += [bytes_field(8, text_field(1, each)) for each in oneofs]
    parts += [bytes_field(9, _range(low, high + 1)) for low, high in message.reserved_ranges]
    parts += [text_field(10, each) for each in message.reserved_names]
    return b"".join(parts)


def _nested(schema: ProtobufSchema, message: ProtoMessage, scope: str) -> Iterator[bytes]:
    # As in the canonical text, fields come before messages: so do the entries of maps.
    for field in message.fields:
        if field.is_map:
            yield _map_entry(schema, field, scope)
    for each in message.messages:
        yield _message(schema, each, _joined(scope, each.name))


def _extensions(schema: ProtobufSchema, extends: Iterable[ProtoExtend], scope: str) -> Iterator[bytes]:
    for extend in extends:
        target = schema.find(extend.message, scope) or extend.message.lstrip(".")
        for field in extend.fields:
            yield _field(schema, field, scope, [], False) + text_field(2, f".{target}")


def _field(schema: ProtobufSchema, field: ProtoField, scope: str, oneofs: list[str], is_optional: bool) -> bytes:
    options = dict(field.options)
    shown = (
        unescaped(options["json_name"]).decode(errors="replace") if "json_name" in options else json_name(field.name)
    )
    parts = [text_field(1, field.name), number_field(3, field.number), text_field(10, shown)]
    if field.is_map:
        entry = f".{scope}.{_entry_name(field.name)}"
        parts += [number_field(4, LABEL_NUMBERS["repeated"]), number_field(5, MESSAGE_TYPE), text_field(6, entry)]
    else:
        parts.append(number_field(4, LABEL_NUMBERS[field.label or "optional"]))
        parts += _type(schema, field.type, scope)
    if "default" in options:
        parts.append(text_field(7, compiled_default(options["default"], field.type)))
    oneof = f"_{field.name}" if is_optional else field.oneof
    parts += _options(8, field.options, FIELD_OPTIONS)
    if oneof:
        parts.append(number_field(9, oneofs.index(oneof)))
    if is_optional:
        parts.append(number_field(17, 1))
    return b"".join(parts)


def _type(schema: ProtobufSchema, name: str, scope: str) -> Iterator[bytes]:
    if name in SCALARS:
        yield number_field(5, TYPE_NUMBERS[name])
        return
    full = schema.find(name, scope)
    found = schema.types.get(full) if full else None
    if is_enum(schema, name, scope):
        yield number_field(5, ENUM_TYPE)
    else:
        yield number_field(5, GROUP_TYPE if isinstance(found, ProtoMessage) and found.is_group else MESSAGE_TYPE)
    yield text_field(6, f".{full or name.lstrip('.')}")


def _map_entry(schema: ProtobufSchema, field: ProtoField, scope: str) -> bytes:
    name = _entry_name(field.name)
    fields = [ProtoField("key", 1, field.key), ProtoField("value", 2, field.type)]
    parts = [bytes_field(2, _field(schema, each, _joined(scope, name), [], False)) for each in fields]
    return b"".join((text_field(1, name), *parts, *_options(7, [("map_entry", "true")], MESSAGE_OPTIONS)))


def _entry_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _enum(enum: ProtoEnum) -> bytes:
    parts = [text_field(1, enum.name)]
    for name, number, options in enum.values:
        value = text_field(1, name) + number_field(2, number) + b"".join(_options(3, options, VALUE_OPTIONS))
        parts.append(bytes_field(2, value))
    parts += _options(3, enum.options, ENUM_OPTIONS)
    # Unlike those of messages, these ranges contain their end.
    parts += [bytes_field(4, _range(low, high)) for low, high in enum.reserved_ranges]
    parts += [text_field(5, each) for each in enum.reserved_names]
    return b"".join(parts)


def _service(schema: ProtobufSchema, service: ProtoService) -> bytes:
    parts = [text_field(1, service.name)]
    parts += [bytes_field(2, _method(schema, each)) for each in service.methods]
    parts += _options(3, service.options, SERVICE_OPTIONS)
    return b"".join(parts)


def _method(schema: ProtobufSchema, method: ProtoMethod) -> bytes:
    parts = [text_field(1, method.name)]
    for number, name in ((2, method.request), (3, method.response)):
        parts.append(text_field(number, f".{schema.find(name, schema.file.package) or name.lstrip('.')}"))
    parts += _options(4, method.options, METHOD_OPTIONS)
    parts += [number_field(5, 1)] if method.streams_requests else []
    parts += [number_field(6, 1)] if method.streams_responses else []
    return b"".join(parts)


def _range(first: int, end: int) -> bytes:
    return number_field(1, first) + number_field(2, end)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
