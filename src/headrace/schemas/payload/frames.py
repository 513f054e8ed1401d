"""The wire format of schema registries: which schema a key or a value was written with. Pure.

    v0   0x00, the id of the schema in four bytes              before the value
    v1   0x01, the GUID of the schema in sixteen bytes         in the header `__key_schema_id` or `__value_schema_id`

For Protobuf, the place of the message in its file follows the id or the GUID: the number of indexes and each of them as
zigzag varints, outermost first; a single zero byte is the first message. Either form is read in either place.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from headrace.schemas.payload.errors import InvalidPayload, NotFramed

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
MAX_MESSAGE_INDEXES: Final = 64
"""Messages of a file are not nested deeper."""

MessageIndexes = tuple[int, ...]
FIRST_MESSAGE: Final[MessageIndexes] = (0,)

_V0: Final = Struct(">BI")
_V0_SIZE: Final = _V0.size
_V1_SIZE: Final = 17
_MAX_VARINT_BYTES: Final = 5

SchemaKey = int | UUID
"""The id of a schema, which is unique in its context, or its GUID, which is unique everywhere."""


class FramedPayload(NamedTuple):
    schema: SchemaKey
    body: bytes
    """The value; with message indexes before it for Protobuf, unless the frame is in a header."""
    header_rest: bytes | None = None
    """What follows the id in the header; None if the id is before the value."""

    def split(self, schema_type: str) -> tuple[MessageIndexes, bytes]:
        """The place of the message in its file, which matters for Protobuf only, and the value itself."""
        if schema_type != "PROTOBUF":
            return FIRST_MESSAGE, self.body
        if self.header_rest is not None:
            return read_indexes(self.header_rest)[0], self.body
        indexes, at = read_indexes(self.body)
        return indexes, self.body[at:]


def read_frame(data: bytes, header: bytes | None = None) -> FramedPayload:
    """Find the id of the schema, in the header if there is one and else before the value. Raises `NotFramed`."""
    if header is not None:
        schema, size = _read_key(header)
        return FramedPayload(schema, data, header[size:])
    schema, size = _read_key(data)
    return FramedPayload(schema, data[size:])


def frame_of(data: bytes, headers: Iterable[tuple[str, bytes | None]] | None, *, is_key: bool = False) -> FramedPayload:
    """Like `read_frame`, with the headers of the record: of several the last one counts. Raises `NotFramed`."""
    name = KEY_HEADER if is_key else VALUE_HEADER
    found = None
    for key, value in headers or ():
        if key == name:
            found = value
    return read_frame(data, found)


def prefix(schema_id: int, indexes: MessageIndexes | None = None) -> bytes:
    """The bytes before a value in v0; with `indexes` for Protobuf."""
    return _V0.pack(0, schema_id) + (b"" if indexes is None else write_indexes(indexes))


def header_value(guid: UUID, indexes: MessageIndexes | None = None) -> bytes:
    """The value of the header in v1; with `indexes` for Protobuf."""
    return b"\x01" + guid.bytes + (b"" if indexes is None else write_indexes(indexes))


def _read_key(data: bytes) -> tuple[SchemaKey, int]:
    if len(data) >= _V0_SIZE and data[0] == 0:
        return _V0.unpack_from(data)[1], _V0_SIZE
    if len(data) >= _V1_SIZE and data[0] == 1:
        return UUID(bytes=bytes(data[1:_V1_SIZE])), _V1_SIZE
    if not data:
        raise NotFramed("the value is empty: it does not begin with the id of a schema")
    if data[0] > 1:
        raise NotFramed(f"the value does not begin with the id of a schema: its first byte is {data[0]}, not 0")
    raise NotFramed("the value is too short for the id of a schema")


def read_indexes(data: bytes) -> tuple[MessageIndexes, int]:
    """The message indexes at the start of `data`, and their size. Raises `InvalidPayload`."""
    count, at = _read_varint(data, 0)
    if not count:
        return FIRST_MESSAGE, at
    if not 0 < count <= MAX_MESSAGE_INDEXES:
        raise InvalidPayload(f"the place of the message in its file has {count} numbers")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return tuple(indexes), at


def write_indexes(indexes: MessageIndexes) -> bytes:
    if indexes == FIRST_MESSAGE:
        return b"\0"
    return b"".join(_varint(each) for each in (len(indexes), *indexes))


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and the position after it."""
    value = shift = 0
    for place in range(at, min(at + _MAX_VARINT_BYTES, len(data))):
        value |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return (value >> 1) ^ -(value & 1), place + 1
        shift += 7
    raise InvalidPayload("the place of the message in its file is cut off")


def _varint(value: int) -> bytes:
    rest = value << 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
