"""Checks every length in a message against the bytes of its frame before kio decodes it.

kio's reader allocates as many elements as an array claims to have: a frame of ten bytes that claims four billion
ends the process. So every request is walked first, along its schema, without making any objects: a string, an array or
a tagged field that does not fit its frame is a `ProtocolError`, and so are more than `MAX_ELEMENTS` elements of arrays
in one request, which would be small on the wire and large in memory. So is a null in a non-nullable field: kio would
pass it on, and no handler expects it. Responses, which a client reads, are walked the same way under a wider limit.

The walk costs a microsecond or two for a request of one topic. It is composed of small functions, one for each field
without a fixed size, once for each version of each API.
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError

from kio.index import load_request_schema, load_response_schema

from headrace.model.errors import ProtocolError
from headrace.protocol.shapes import FIXED_SIZES, Shape, layout
from headrace.runtime.varint import VarintTooLong, read_uvarint

Buffer = bytes | bytearray | memoryview

MAX_ELEMENTS = 100_000
MAX_RESPONSE_ELEMENTS = 5_000_000
"""The metadata of a large cluster has a few elements for each replica of each partition."""

Walk = Callable[[Buffer, int, "Walked"], int]
"""Maps the start position of a value to its end position. Positions may run past the end of the buffer: reads there
fail, and `check_lengths` checks the last one."""

_I32 = Struct(">i")
_I64 = Struct(">q")
_LONGEST_MS = 10**15
"""More than 30,000 years, and less than the longest `timedelta`."""
_U16 = Struct(">H")
_NULL_U16 = 0xFFFF


class Walked:
    """The state of a walk."""

    __slots__ = ("elements_left", "unknown_tags")

    def __init__(self, max_elements: int) -> None:
        self.elements_left = max_elements
        self.unknown_tags = 0

    def count(self, count: int, bytes_left: int) -> None:
        """Count elements, each of which has at least one byte."""
        self.elements_left -= count
        if count > bytes_left or self.elements_left < 0:
            raise ProtocolError(f"an array claims {count} elements, with {max(bytes_left, 0)} bytes left")


def check_lengths(api_key: int, api_version: int, frame: Buffer, body_at: int) -> bool:
    """Raise `ProtocolError` unless all lengths fit the body. True if the body has unknown tagged fields."""
    return _check(_request_walk(api_key, api_version), frame, body_at, Walked(MAX_ELEMENTS))


def check_response_lengths(api_key: int, api_version: int, frame: Buffer, body_at: int) -> bool:
    """Like `check_lengths`, for the response to a request of this version."""
    return _check(_response_walk(api_key, api_version), frame, body_at, Walked(MAX_RESPONSE_ELEMENTS))


def _check(walk: Walk, frame: Buffer, body_at: int, walked: Walked) -> bool:
    try:
        end = walk(frame, body_at, walked)
    except (IndexError, StructError):
        raise ProtocolError("it is shorter than its fields") from None
    except VarintTooLong as error:
        raise ProtocolError(str(error)) from None
    if end > len(frame):
        raise ProtocolError("it is shorter than its fields")
    return walked.unknown_tags > 0


def with_bounded_times(api_key: int, api_version: int, frame: Buffer, body_at: int) -> bytes:
    """A copy of a checked request, with the durations of its top level limited to the range of `timedelta`.

    Clients send the largest integer for "for ever": as the retention of committed offsets, or the lifetime of a token.
    """
    schema = load_request_schema(api_key, api_version)
    copy, at, walked = bytearray(frame), body_at, Walked(MAX_ELEMENTS)
    for shape in layout(schema).plain:
        if shape.primitive == "timedelta_i64" and not shape.is_array:
            (time_ms,) = _I64.unpack_from(copy, at)
            _I64.pack_into(copy, at, max(-_LONGEST_MS, min(time_ms, _LONGEST_MS)))
        at = _field(shape, flexible=bool(schema.__flexible__))(copy, at, walked)
    return bytes(copy)


def prepare_lengths(api_key: int, api_version: int) -> None:
    """Build the walk of this version ahead of its first use."""
    _request_walk(api_key, api_version)


@cache
def _request_walk(api_key: int, api_version: int) -> Walk:
    schema = load_request_schema(api_key, api_version)
    return _entity(schema, flexible=bool(schema.__flexible__))


@cache
def _response_walk(api_key: int, api_version: int) -> Walk:
    schema = load_response_schema(api_key, api_version)
    return _entity(schema, flexible=bool(schema.__flexible__))


def _entity(entity: type, *, flexible: bool) -> Walk:
    """The walk of an entity: sizes of fixed fields are added up, every other field has a step."""
    fixed_size = 0
    steps: list[tuple[int, Walk]] = []
    for shape in layout(entity).plain:
        if not shape.is_array and shape.primitive in FIXED_SIZES:
            fixed_size += FIXED_SIZES[shape.primitive]
        else:
            steps.append((fixed_size, _field(shape, flexible=flexible)))
            fixed_size = 0
    if flexible:
        tagged = {tag: _field(shape, flexible=True) for tag, shape in layout(entity).tagged.items()}
        steps.append((fixed_size, _tags(tagged)))
        fixed_size = 0

    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        for fixed_before, step in steps:
            at = step(buffer, at + fixed_before, walked)
        return at + fixed_size

    return walk


def _fixed(size: int) -> Walk:
    return lambda buffer, at, walked: at + size


def _field(shape: Shape, *, flexible: bool) -> Walk:
    if shape.is_array:
        element_size = _fixed_element_size(shape, flexible=flexible)
        if element_size is not None:
            return _fixed_elements(element_size, flexible=flexible, nullable=shape.is_nullable)
        element = _one(shape._replace(is_nullable=False), flexible=flexible)
        return _elements(element, flexible=flexible, nullable=shape.is_nullable)
    one = _one(shape, flexible=flexible)
    return _nullable(one) if shape.entity is not None and shape.is_nullable else one


def _one(shape: Shape, *, flexible: bool) -> Walk:
    if shape.entity is not None:
        return _entity(shape.entity, flexible=flexible)
    if shape.primitive in FIXED_SIZES:
        return _fixed(FIXED_SIZES[shape.primitive])
    if flexible:
        return _compact_bytes(shape.is_nullable)
    return _short_string(shape.is_nullable) if shape.primitive == "string" else _long_bytes(shape.is_nullable)


def _fixed_element_size(shape: Shape, *, flexible: bool) -> int | None:
    if shape.entity is None:
        return FIXED_SIZES.get(shape.primitive)
    inner = layout(shape.entity).plain
    if flexible or any(field.is_array or field.primitive not in FIXED_SIZES for field in inner):
        return None
    return sum(FIXED_SIZES[field.primitive] for field in inner)


def _compact_bytes(nullable: bool) -> Walk:
    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        length = buffer[at]
        at += 1
        if length >= 0x80:
            length, at = read_uvarint(buffer, at - 1)
        return at + length - 1 if length else _null(at, nullable)

    return walk


def _short_string(nullable: bool) -> Walk:
    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        (length,) = _U16.unpack_from(buffer, at)
        if length < 0x8000:
            return at + 2 + int(length)
        if length != _NULL_U16:
            raise ProtocolError(f"a string has the negative length {length - 0x10000}")
        return _null(at + 2, nullable)

    return walk


def _long_bytes(nullable: bool) -> Walk:
    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        (length,) = _I32.unpack_from(buffer, at)
        if length >= 0:
            return at + 4 + int(length)
        if length != -1:
            raise ProtocolError(f"a field of bytes has the negative length {length}")
        return _null(at + 4, nullable)

    return walk


def _null(at: int, nullable: bool) -> int:
    """The end of a null, which has no bytes behind its length; `ProtocolError` if the field is not nullable."""
    if not nullable:
        raise ProtocolError("a field that must be there is null")
    return at


def _fixed_elements(size: int, *, flexible: bool, nullable: bool) -> Walk:
    read_count = _compact_count if flexible else _plain_count

    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        count, at = read_count(buffer, at)
        if count < 0:
            return _null(at, nullable)
        walked.count(count, len(buffer) - at)
        return at + count * size

    return walk


def _elements(element: Walk, *, flexible: bool, nullable: bool) -> Walk:
    read_count = _compact_count if flexible else _plain_count

    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        count, at = read_count(buffer, at)
        if count == 1:
            # The common case of the common requests: one topic, one partition.
            return element(buffer, at, walked)
        if count < 0:
            return _null(at, nullable)
        walked.count(count, len(buffer) - at)
        for _ in range(count):
            at = element(buffer, at, walked)
        return at

    return walk


def _compact_count(buffer: Buffer, at: int) -> tuple[int, int]:
    """The element count of an array (-1 for null), and the position of the first element."""
    count, at = read_uvarint(buffer, at)
    return count - 1, at


def _plain_count(buffer: Buffer, at: int) -> tuple[int, int]:
    (count,) = _I32.unpack_from(buffer, at)
    if count < -1:
        raise ProtocolError(f"an array has the negative length {count}")
    return count, at + 4


def _nullable(entity: Walk) -> Walk:
    """A structure that may be null starts with a byte: negative for null."""
    return lambda buffer, at, walked: at + 1 if buffer[at] >= 0x80 else entity(buffer, at + 1, walked)


def _tags(known: dict[int, Walk]) -> Walk:
    def walk(buffer: Buffer, at: int, walked: Walked) -> int:
        if buffer[at] == 0:
            return at + 1
        count, at = read_uvarint(buffer, at)
        walked.count(count, len(buffer) - at)
        for _ in range(count):
            tag, at = read_uvarint(buffer, at)
            size, at = read_uvarint(buffer, at)
            if tag not in known:
                walked.unknown_tags += 1
            elif known[tag](buffer, at, walked) != at + size:
                raise ProtocolError(f"the tagged field {tag} is not as long as it claims")
            at += size
        return at

    return walk
