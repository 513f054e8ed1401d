"""What is encoded is read back, wherever it lies and whatever follows it."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.varint import INT32_BYTES, INT64_BYTES, encode_uvarint, encode_varint, read_uvarint, read_varint

junk = st.binary(max_size=12)


@given(junk, st.integers(0, 2**32 - 1), junk)
def test_unsigned(before: bytes, value: int, behind: bytes) -> None:
    coded = encode_uvarint(value)
    for kind in (bytes, bytearray, memoryview):
        assert read_uvarint(kind(before + coded + behind), len(before)) == (value, len(before) + len(coded))
    assert len(coded) <= INT32_BYTES


@given(junk, st.integers(-(2**31), 2**31 - 1), junk)
def test_signed_of_32_bits(before: bytes, value: int, behind: bytes) -> None:
    coded = encode_varint(value)
    assert read_varint(before + coded + behind, len(before)) == (value, len(before) + len(coded))
    assert len(coded) <= INT32_BYTES


@given(junk, st.integers(-(2**63), 2**63 - 1), junk)
def test_signed_of_64_bits(before: bytes, value: int, behind: bytes) -> None:
    coded = encode_varint(value)
    assert read_varint(before + coded + behind, len(before), INT64_BYTES) == (value, len(before) + len(coded))
    assert len(coded) <= INT64_BYTES
