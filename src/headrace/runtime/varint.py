"""Variable-length integers: seven bits to a byte, the lowest first, as Kafka and Avro write them. Pure.

A `varint` is zigzag-coded, so that small negative numbers are short too; a `uvarint` is unsigned. `records/varints.py`
reads and writes whole arrays of them with numpy.
"""

INT32_BYTES = 5
INT64_BYTES = 10


class VarintTooLong(ValueError):
    """A number has more bytes or bits than its type."""


def read_uvarint(data: bytes | bytearray | memoryview, at: int, max_bytes: int = INT32_BYTES) -> tuple[int, int]:
    """The number at `at` and the position after it; `IndexError` if the data ends before the number does."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for shift in range(7, 7 * max_bytes, 7):
        at += 1
        byte = data[at]
        if byte < 0x80:
            return value | byte << shift, at + 1
        value |= (byte & 0x7F) << shift
    raise VarintTooLong(f"a variable-length number has more than {max_bytes} bytes")


def read_varint(data: bytes | bytearray | memoryview, at: int, max_bytes: int = INT32_BYTES) -> tuple[int, int]:
    """Like `read_uvarint`, zigzag-coded. The number must fit 32 bits, or 64 where `max_bytes` is `INT64_BYTES`."""
    coded, at = read_uvarint(data, at, max_bytes)
    if coded >> (32 if max_bytes == INT32_BYTES else 64):
        raise VarintTooLong("a variable-length number does not fit its type")
    return (coded >> 1) ^ -(coded & 1), at


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """A number of at most 64 bits, zigzag-coded."""
    return encode_uvarint((value << 1) ^ (value >> 63))
