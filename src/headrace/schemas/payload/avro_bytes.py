"""Checks that bytes are a value of an Avro schema: strictly, within bounds, and with the path of what is wrong. Pure.

`fastavro` alone is not safe with hostile bytes: it follows a recursive schema until the process crashes, makes a list
of as many nulls as an array claims to have, and takes a negative index from the end. A value of no bytes at all can
have any number of empty records in records.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from headrace.schemas.avro.types import AvroSchema, AvroSchemaType
from headrace.schemas.payload.errors import InvalidPayload

MAX_DEPTH: Final = 100
"""Nested values."""
MAX_EMPTY_ITEMS: Final = 10_000
"""Items of arrays and fields of records that take no bytes, such as nulls, in one value."""
_EMPTY_OF_A_BYTE: Final = 4
"""So many more for each byte of the value."""

Walk = Callable[[bytes, int, int], int]
"""Takes bytes, a position and the depth; returns the position after the value."""

_INT: Final = (-(2**31), 2**31 - 1)
_LONG: Final = (-(2**63), 2**63 - 1)


def byte_check(schema: AvroSchema) -> Callable[[bytes], None]:
    """A function that raises `InvalidPayload` unless its argument is exactly one value of the schema."""
    walk = _Walks().of(schema.root)

    def check(data: bytes) -> None:
        _empty_left.set(MAX_EMPTY_ITEMS + _EMPTY_OF_A_BYTE * len(data))
        try:
            end = walk(data, 0, 0)
        except RecursionError:
            raise InvalidPayload("the value is nested too deep") from None
        if end != len(data):
            raise InvalidPayload(f"{len(data) - end} bytes are left after the value")

    return check


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the position after it."""
    try:
        byte = data[at]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), at + 1
        value, shift, last = byte & 0x7F, 7, at + 9
        while True:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at + 1
            if at >= last:
                raise InvalidPayload("a number has more than ten bytes")
            shift += 7
    except IndexError:
        raise InvalidPayload("the bytes end before the value does") from None


def _number(low: int, high: int, kind: str) -> Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        value, at = _varint(data, at)
        if not low <= value <= high:
            raise InvalidPayload(f"{value} does not fit the type {kind}")
        return at

    return walk


def _fixed(size: int) -> Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        if at + size > len(data):
            raise InvalidPayload("the bytes end before the value does")
        return at + size

    return walk


def _null(data: bytes, at: int, depth: int) -> int:
    return at


def _boolean(data: bytes, at: int, depth: int) -> int:
    if at >= len(data):
        raise InvalidPayload("the bytes end before the value does")
    if data[at] > 1:
        raise InvalidPayload(f"the byte {data[at]} is not a boolean")
    return at + 1


def _bytes(data: bytes, at: int, depth: int) -> int:
    size, at = _varint(data, at)
    if size < 0:
        raise InvalidPayload("a length is negative")
    if at + size > len(data):
        raise InvalidPayload("the bytes end before the value does")
    return at + size


def _string(data: bytes, at: int, depth: int) -> int:
    size, start = _varint(data, at)
    if size < 0:
        raise InvalidPayload("a length is negative")
    if start + size > len(data):
        raise InvalidPayload("the bytes end before the value does")
    try:
        data[start : start + size].decode()
    except UnicodeDecodeError:
        raise InvalidPayload("a string is not UTF-8") from None
    return start + size


def _enum(type_: AvroSchemaType) -> Walk:
    count = len(type_.symbols)

    def walk(data: bytes, at: int, depth: int) -> int:
        index, at = _varint(data, at)
        if not 0 <= index < count:
            raise InvalidPayload(f"there is no symbol number {index} in {type_.name}")
        return at

    return walk


_PRIMITIVES: Final[dict[str, Walk]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number(*_INT, "int"),
    "long": _number(*_LONG, "long"),
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _string,
}


_empty_left: ContextVar[int] = ContextVar("empty_left")
"""How much that takes no bytes may still come in the value that is being checked."""


def _take_empty(count: int) -> None:
    left = _empty_left.get() - count
    if left < 0:
        raise InvalidPayload(f"there are more than {MAX_EMPTY_ITEMS} empty items")
    _empty_left.set(left)


class _Walks:
    """Makes a function for each type; that of a named type is made once, so that recursion ends."""

    def __init__(self) -> None:
        self._made: dict[int, Walk] = {}
        self._weights: dict[int, int] = {}

    def _weight(self, type_: AvroSchemaType) -> int:
        """The number of values in one of a type that never takes any bytes; 0 for other types."""
        if type_.kind == "null" or (type_.kind == "fixed" and not type_.size):
            return 1
        if type_.kind != "record":
            return 0
        key = id(type_)
        if key not in self._weights:
            self._weights[key] = 0  # one that contains itself has no end
            parts = [self._weight(each.type) for each in type_.fields]
            self._weights[key] = 1 + sum(parts) if all(parts) else 0
        return self._weights[key]

    def of(self, type_: AvroSchemaType) -> Walk:
        if type_.kind in _PRIMITIVES:
            return _PRIMITIVES[type_.kind]
        known = self._made.get(id(type_))
        if known is not None:
            return known
        match type_.kind:
            case "enum":
                return _enum(type_)
            case "fixed":
                return _fixed(type_.size)
            case "union":
                return self._union([self.of(each) for each in type_.branches])
            case "array" | "map":
                assert type_.items is not None
                return self._blocks(self.of(type_.items), has_keys=type_.kind == "map")
        return self._record(type_)

    def _union(self, branches: list[Walk]) -> Walk:
        count = len(branches)

        def walk(data: bytes, at: int, depth: int) -> int:
            index, at = _varint(data, at)
            if not 0 <= index < count:
                raise InvalidPayload(f"there is no branch number {index} in a union of {count}")
            return branches[index](data, at, depth)

        return walk

    def _record(self, type_: AvroSchemaType) -> Walk:
        fields: list[tuple[str, Walk]] = []
        empty = sum(self._weight(each.type) for each in type_.fields)

        def walk(data: bytes, at: int, depth: int) -> int:
            if depth > MAX_DEPTH:
                raise InvalidPayload(f"the value is nested more than {MAX_DEPTH} deep")
            if empty:
                _take_empty(empty)
            for name, each in fields:
                try:
                    at = each(data, at, depth + 1)
                except InvalidPayload as error:
                    raise error.within(name) from None
            return at

        self._made[id(type_)] = walk
        fields.extend((each.name, self.of(each.type)) for each in type_.fields if not self._weight(each.type))
        return walk

    def _blocks(self, item: Walk, *, has_keys: bool) -> Walk:
        def walk(data: bytes, at: int, depth: int) -> int:
            if depth > MAX_DEPTH:
                raise InvalidPayload(f"the value is nested more than {MAX_DEPTH} deep")
            index = 0
            while True:
                count, at = _varint(data, at)
                if not count:
                    return at
                if count < 0:
                    _, at = _varint(data, at)
                    count = -count
                for _ in range(count):
                    start = at
                    try:
                        if has_keys:
                            at = _string(data, at, depth)
                        at = item(data, at, depth + 1)
                    except InvalidPayload as error:
                        raise error.within(f"[{index}]") from None
                    index += 1
                    if at == start:
                        _take_empty(1)

        return walk
