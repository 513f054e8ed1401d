"""The fields of messages in Protobuf's wire format, read and written without its library. Pure."""

from collections.abc import Iterator

from headrace.runtime.varint import INT64_BYTES, VarintTooLong, encode_uvarint, read_uvarint

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_UINT64 = 2**64 - 1

WireField = tuple[int, int, "int | memoryview"]
"""Number and wire type of a field, and its value: a number, or bytes."""


class MalformedMessage(ValueError):
    """Bytes that are not a message."""


def wire_fields(data: bytes | memoryview) -> Iterator[WireField]:
    """The fields of a message. A value of fixed size is given as its bytes. Raises `MalformedMessage`."""
    view = memoryview(data)
    at, end = 0, len(view)
    try:
        while at < end:
            tag, at = read_uvarint(view, at)
            number, wire = tag >> 3, tag & 7
            if not number:
                raise MalformedMessage("a field has no number")
            if wire == VARINT:
                value, at = read_uvarint(view, at, INT64_BYTES)
                yield number, wire, value & _UINT64
                continue
            if wire == BYTES:
                size, at = read_uvarint(view, at)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
            else:
                raise MalformedMessage(f"a field has the wire type {wire}, which is not known")
            if size > end - at:
                raise MalformedMessage(f"a field claims {size} bytes, {end - at} are there")
            yield number, wire, view[at : at + size]
            at += size
    except IndexError:
        raise MalformedMessage("a message ends inside a field") from None
    except VarintTooLong as error:
        raise MalformedMessage(str(error)) from None


def number_field(number: int, value: int) -> bytes:
    return encode_uvarint(number << 3 | VARINT) + encode_uvarint(value & _UINT64)


def bytes_field(number: int, value: bytes) -> bytes:
    return encode_uvarint(number << 3 | BYTES) + encode_uvarint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())
