"""The canonical text of a .proto file: without comments, in one layout, so that equal files are equal texts. Pure."""

from collections.abc import Iterable, Iterator

from headrace.schemas.protobuf.syntax import (
    MAX_FIELD_NUMBER,
    NumberRange,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    ProtoOption,
    ProtoService,
)

_INDENT = "  "
_MAX_ENUM = 2**31 - 1


def canonical_proto(file: ProtoFile) -> str:
    """The text of the file."""
    return "\n".join(_file(file, is_sorted=False)) + "\n"


def normalized_proto(file: ProtoFile) -> str:
    """The text with fields, values, imports and options in order: files that mean the same are the same."""
    return "\n".join(_file(file, is_sorted=True)) + "\n"


def _file(file: ProtoFile, *, is_sorted: bool) -> Iterator[str]:
    yield f"{'edition' if file.is_edition else 'syntax'} = {_quoted(file.syntax)};"
    if file.package:
        yield f"package {file.package};"
    if file.imports:
        yield ""
        for kind, name in sorted(file.imports) if is_sorted else file.imports:
            yield f"import {kind + ' ' if kind else ''}{_quoted(name)};"
    if file.options:
        yield ""
        yield from _options(file.options, is_sorted)
    for message in file.messages:
        if not message.is_group:
            yield ""
            yield from _message(message, is_sorted)
    for enum in file.enums:
        yield ""
        yield from _enum(enum, is_sorted)
    for extend in file.extends:
        yield ""
        yield from _extend(extend, file.messages, is_sorted)
    for service in file.services:
        yield ""
        yield from _service(service, is_sorted)


def _message(message: ProtoMessage, is_sorted: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from _indented(_body(message, is_sorted))
    yield "}"


def _body(message: ProtoMessage, is_sorted: bool) -> Iterator[str]:
    yield from _options(message.options, is_sorted)
    yield from _ranges("reserved", message.reserved_ranges, MAX_FIELD_NUMBER)
    if message.reserved_names:
        yield f"reserved {', '.join(map(_quoted, message.reserved_names))};"
    fields = sorted(message.fields, key=lambda each: each.number) if is_sorted else message.fields
    groups = {each.name: each for each in message.messages if each.is_group}
    for field in fields:
        if not field.oneof:
            yield from _field(field, groups, is_sorted)
    members: dict[str, list[ProtoField]] = {name: [] for name in message.oneofs}
    for field in fields:
        if field.oneof:
            members[field.oneof].append(field)
    for oneof, chosen in members.items():
        yield f"oneof {oneof} {{"
        for field in chosen:
            yield from _indented(_field(field, groups, is_sorted))
        yield "}"
    yield from _ranges("extensions", message.extension_ranges, MAX_FIELD_NUMBER)
    for inner in message.messages:
        if not inner.is_group:
            yield from _message(inner, is_sorted)
    for enum in message.enums:
        yield from _enum(enum, is_sorted)
    for extend in message.extends:
        yield from _extend(extend, message.messages, is_sorted)


def _field(field: ProtoField, groups: dict[str, ProtoMessage], is_sorted: bool) -> Iterator[str]:
    label = f"{field.label} " if field.label else ""
    options = _bracketed(field.options, is_sorted)
    if field.type in groups:
        yield f"{label}group {field.type} = {field.number}{options} {{"
        yield from _indented(_body(groups[field.type], is_sorted))
        yield "}"
        return
    type_ = f"map<{field.key}, {field.type}>" if field.is_map else field.type
    yield f"{label}{type_} {field.name} = {field.number}{options};"


def _enum(enum: ProtoEnum, is_sorted: bool) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from _indented(_options(enum.options, is_sorted))
    yield from _indented(_ranges("reserved", enum.reserved_ranges, _MAX_ENUM))
    if enum.reserved_names:
        yield f"{_INDENT}reserved {', '.join(map(_quoted, enum.reserved_names))};"
    for name, number, options in enum.values:
        yield f"{_INDENT}{name} = {number}{_bracketed(options, is_sorted)};"
    yield "}"


def _extend(extend: ProtoExtend, messages: Iterable[ProtoMessage], is_sorted: bool) -> Iterator[str]:
    groups = {each.name: each for each in messages if each.is_group}
    yield f"extend {extend.message} {{"
    for field in extend.fields:
        yield from _indented(_field(field, groups, is_sorted))
    yield "}"


def _service(service: ProtoService, is_sorted: bool) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from _indented(_options(service.options, is_sorted))
    for method in service.methods:
        request = f"{'stream ' if method.streams_requests else ''}{method.request}"
        response = f"{'stream ' if method.streams_responses else ''}{method.response}"
        head = f"{_INDENT}rpc {method.name} ({request}) returns ({response})"
        if method.options:
            yield f"{head} {{"
            yield from _indented(_indented(_options(method.options, is_sorted)))
            yield f"{_INDENT}}}"
        else:
            yield f"{head};"
    yield "}"


def _options(options: Iterable[ProtoOption], is_sorted: bool) -> Iterator[str]:
    for name, value in sorted(options) if is_sorted else options:
        yield f"option {name} = {value};"


def _bracketed(options: Iterable[ProtoOption], is_sorted: bool) -> str:
    found = sorted(options) if is_sorted else [*options]
    return f" [{', '.join(f'{name} = {value}' for name, value in found)}]" if found else ""


def _ranges(word: str, ranges: Iterable[NumberRange], most: int) -> Iterator[str]:
    pieces = [
        str(first) if first == last else f"{first} to {'max' if last == most else last}" for first, last in ranges
    ]
    if pieces:
        yield f"{word} {', '.join(pieces)};"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield _INDENT + line


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
