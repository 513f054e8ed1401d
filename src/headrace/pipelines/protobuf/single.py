"""Decodes a single Protobuf message: one that has too many fields for columns, or a message in several parts."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from headrace.pipelines.protobuf.scalars import FIXED, MAX_S, STRUCTS, default_of, enum_name, wire_type
from headrace.pipelines.protobuf.schema import MessageField, MessageType
from headrace.pipelines.values.nodes import UnreadableValue
from headrace.runtime.varint import INT64_BYTES, VarintTooLong, read_uvarint

_MAX_NUMBER = 2**29 - 1


def read_message(type_: MessageType, parts: Sequence[bytes], path: str, at: int = 0) -> Any:
    """The message that is written in these parts, each valid on its own, as Arrow takes it; `UnreadableValue` with the
    reason. The first part begins at `at`.

    Values that count no more, such as an earlier member of a oneof, are checked, too: columns do, and a value must not
    be judged by the others that it is read with.
    """
    if type_.is_time and len(parts) > 1:
        for each in parts:
            read_message(type_, [each], path)
    fields = {each.number: each for each in type_.fields}
    found: dict[int, list[Any]] = {}
    chosen: dict[str, int] = {}
    for data in parts:
        _read_fields(fields, data, at, path, found, chosen)
        at = 0
    made = {each.name: _final(each, found.get(each.number, []), each.path_in(path)) for each in type_.fields}
    if type_.is_time:
        if abs(made["seconds"]) > MAX_S:
            raise UnreadableValue(f"{path} is a time too far away")
        return made["seconds"] * 1_000_000 + made["nanos"] // 1000
    return made["value"] if type_.is_wrapper else made


def _read_fields(
    fields: dict[int, MessageField],
    data: bytes,
    at: int,
    path: str,
    found: dict[int, list[Any]],
    chosen: dict[str, int],
) -> None:
    end = len(data)
    while at < end:
        tag, at = _number(data, at, end, path)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise UnreadableValue("the value has a field of no valid number")
        field = fields.get(number)
        if field is None:
            at = _skipped(data, at, end, wire, path)
            continue
        where = field.path_in(path)
        expected = wire_type(field.kind)
        if wire == 2 and expected != 2 and field.is_repeated:
            size, at = _number(data, at, end, where)
            _check(size, at, end, where)
            stop = at + size
            while at < stop:
                value, at = _scalar(field, data, at, stop, where)
                found.setdefault(number, []).append(value)
            continue
        if wire != expected:
            raise UnreadableValue(f"the field number {number} was written with another type")
        value, at = _scalar(field, data, at, end, where)
        found.setdefault(number, []).append(value)
        if field.oneof:
            before = fields[chosen.get(field.oneof, number)]
            chosen[field.oneof] = number
            if before is not field:
                _final(before, found.pop(before.number), before.path_in(path))


def _final(field: MessageField, values: list[Any], path: str) -> Any:
    """The value of a field from all that was written of it."""
    message = field.message
    if field.is_repeated:
        if message is None:
            return values
        made = [read_message(message, [each], path) for each in values]
        return [*{each["key"]: each["value"] for each in made}.items()] if not message.name else made
    if not values:
        return None if field.has_presence else default_of(field)
    if message is None:
        return values[-1]
    return read_message(message, values, path)


def _scalar(field: MessageField, data: bytes, at: int, end: int, path: str) -> tuple[Any, int]:
    """A value and the position after it; a message as its bytes."""
    kind = field.kind
    if kind in FIXED:
        _check(STRUCTS[kind].size, at, end, path)
        value: Any = STRUCTS[kind].unpack_from(data, at)[0]
        return Decimal(value) if kind == "fixed64" else value, at + STRUCTS[kind].size
    number, at = _number(data, at, end, path)
    if wire_type(kind) == 0:
        return _of_number(field, number), at
    _check(number, at, end, path)
    chunk = data[at : at + number]
    if kind != "string":
        return chunk, at + number
    try:
        return chunk.decode(), at + number
    except UnicodeDecodeError:
        raise UnreadableValue(f"{path} is not UTF-8") from None


def _of_number(field: MessageField, number: int) -> Any:
    low = number & 0xFFFF_FFFF
    match field.kind:
        case "bool":
            return number != 0
        case "uint32":
            return low
        case "uint64":
            return Decimal(number)
        case "int64":
            return number - (number >> 63 << 64)
        case "sint32":
            return (low >> 1) ^ -(low & 1)
        case "sint64":
            return (number >> 1) ^ -(number & 1)
    signed = low - (low >> 31 << 32)
    return enum_name(field, signed) if field.kind == "enum" else signed


def _number(data: bytes, at: int, end: int, path: str) -> tuple[int, int]:
    try:
        value, after = read_uvarint(data, at, INT64_BYTES)
    except IndexError:
        raise UnreadableValue(f"{path} is cut off") from None
    except VarintTooLong:
        raise UnreadableValue(f"{path} has a number of more than 64 bits") from None
    if value >> 64:
        raise UnreadableValue(f"{path} has a number of more than 64 bits")
    if after > end:
        raise UnreadableValue(f"{path} is cut off")
    return value, after


def _check(size: int, at: int, end: int, path: str) -> None:
    if size > end - at:
        raise UnreadableValue(f"{path} is cut off")


def _skipped(data: bytes, at: int, end: int, wire: int, path: str) -> int:
    if wire == 0:
        return _number(data, at, end, path)[1]
    if wire == 2:
        size, at = _number(data, at, end, path)
    elif wire in (1, 5):
        size = 8 if wire == 1 else 4
    else:
        raise UnreadableValue(f"{path} has a field of no known kind")
    _check(size, at, end, path)
    return at + size
