"""Variable-length integers, against kio's own and at the edges of their types."""

import pytest
from kio.serial.readers import read_unsigned_varint

from headrace.runtime.varint import INT64_BYTES, VarintTooLong, encode_uvarint, encode_varint, read_uvarint, read_varint


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**31 - 1])
def test_kio_reads_what_is_encoded(value: int) -> None:
    assert read_unsigned_varint(encode_uvarint(value), 0) == (value, len(encode_uvarint(value)))


@pytest.mark.parametrize(("data", "value"), [(b"\x00", 0), (b"\x01", -1), (b"\x02", 1), (b"\xac\x02", 150)])
def test_zigzag(data: bytes, value: int) -> None:
    assert encode_varint(value) == data
    assert read_varint(data, 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff"])
def test_a_number_that_is_cut_off(data: bytes) -> None:
    for read in (read_uvarint, read_varint):
        with pytest.raises(IndexError):
            read(data, 0)


def test_more_bytes_than_the_type_has() -> None:
    assert read_uvarint(b"\xff\xff\xff\xff\x7f", 0) == (2**35 - 1, 5)
    with pytest.raises(VarintTooLong, match="more than 5 bytes"):
        read_uvarint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(VarintTooLong, match="more than 10 bytes"):
        read_uvarint(b"\x80" * 10 + b"\x00", 0, INT64_BYTES)


def test_more_bits_than_the_type_has() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (-(2**31), 5)
    with pytest.raises(VarintTooLong, match="does not fit"):
        read_varint(b"\xff\xff\xff\xff\x10", 0)
    assert read_varint(b"\xff" * 9 + b"\x01", 0, INT64_BYTES) == (-(2**63), 10)
    with pytest.raises(VarintTooLong, match="does not fit"):
        read_varint(b"\xff" * 9 + b"\x02", 0, INT64_BYTES)
