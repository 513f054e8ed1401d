"""Codecs: what goes in comes out, what clients wrote is read, and nothing grows past the cap."""

import gzip

import cramjam
import pytest

from headrace.model.errors import CorruptBatch, UnsupportedCodec
from headrace.records.compression import Codec, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SAMPLES = [b"", b"x", b"hello " * 10, bytes(range(256)) * 300, b"\0" * 1_000_000]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_round_trip(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", Codec)
def test_any_buffer_is_accepted(codec: Codec) -> None:
    packed = compress(codec, memoryview(bytearray(b"abc" * 100)))
    assert decompress(codec, memoryview(b"??" + packed)[2:]) == b"abc" * 100


@pytest.mark.parametrize("codec", Codec)
def test_output_of_exactly_the_cap_is_fine_and_one_byte_more_is_not(codec: Codec) -> None:
    for size in (1000, 300_000):
        packed = compress(codec, b"a" * size)
        assert len(decompress(codec, packed, size)) == size
        with pytest.raises(CorruptBatch):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_cut_short_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 20)
    for length in (1, 9, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:length])


def test_raw_snappy_as_librdkafka_sends_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 1000))) == b"abc" * 1000


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    with pytest.raises(CorruptBatch, match="claims to hold"):
        decompress(Codec.SNAPPY, b"\x80\x80\x80\x20ab")
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("length", [-1, 0, 5, 2**31 - 1])
def test_a_xerial_block_with_a_lying_length(length: int) -> None:
    framed = b"\x82SNAPPY\x00" + bytes(8) + length.to_bytes(4, "big", signed=True) + b"abc"
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, framed)


def test_several_gzip_members_are_one_stream() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_lz4_frames_have_independent_blocks_as_java_demands() -> None:
    flags = compress(Codec.LZ4, b"abc" * 100_000)[4]
    assert flags & 0x20


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        decompress(codec, b"abc")
    with pytest.raises(UnsupportedCodec):
        compress(codec, b"abc")
