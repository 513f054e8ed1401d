"""The codecs of a record batch: none, gzip, snappy, lz4 and zstd, by the numbers of its attributes.

Decompression is bounded: the output never grows past a cap, whatever the input claims, and memory is allocated as
output arrives. A decompression bomb and a corrupt stream are both `CorruptBatch`; an unknown codec number is
`UnsupportedCodec`.

The formats that clients send:
- snappy is raw (librdkafka) or in the framing of xerial's Java library (Java, kafka-python, aiokafka); both
  are read, xerial's is written, as every client reads it;
- lz4 is the frame format with *independent* blocks: Java's reader refuses linked ones.
"""

from collections.abc import Callable
from enum import IntEnum
from mmap import mmap
from struct import Struct

import cramjam

from headrace.model.errors import CorruptBatch, UnsupportedCodec
from headrace.records.batch import Buffer

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The default cap. A batch of `max.message.bytes` = 1 MiB of very repetitive text stays below it."""

_FIRST_GUESS_BYTES = 64 * 1024
_SNAPPY_MAX_RATIO = 64
"""No snappy stream expands further: its densest element is a 3-byte copy of 64 bytes."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` as a client would send it under `codec`. The default level is the codec's own."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        lz4 = cramjam.lz4.Compressor(level=level, block_linked=False)
        lz4.compress(bytes(data))
        return bytes(lz4.finish())
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress `data` to at most `max_bytes`; `CorruptBatch` if there is more."""
    if codec == Codec.NONE:
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_within(cramjam.gzip.decompress_into, data, max_bytes)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Codec.LZ4:
        return _decompress_within(cramjam.lz4.decompress_into, data, max_bytes)
    if codec == Codec.ZSTD:
        return _decompress_within(cramjam.zstd.decompress_into, data, max_bytes)
    raise _unknown(codec)


def _decompress_within(
    decompress_into: Callable[[Buffer, bytearray | mmap], int], data: Buffer, max_bytes: int
) -> bytes:
    """Decompress into a buffer of fixed size, and stop where the buffer ends.

    Most batches fit the first guess. The second attempt gets the whole cap as address space, of which the system
    allocates only the pages that are written: a corrupt or lying stream costs no more than its real output.
    """
    guess = min(max(4 * len(data), _FIRST_GUESS_BYTES), max_bytes)
    space = bytearray(guess)
    try:
        return bytes(memoryview(space)[: decompress_into(data, space)])
    except cramjam.DecompressionError as error:
        if guess == max_bytes:
            raise _broken(error, max_bytes) from None
    del space
    with mmap(-1, max_bytes) as pages:
        try:
            return pages[: decompress_into(data, pages)]
        except cramjam.DecompressionError as error:
            raise _broken(error, max_bytes) from None


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptBatch("a snappy stream ends inside its header")
    parts: list[bytes] = []
    room = max_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise CorruptBatch("a snappy stream ends inside a block length")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < length <= len(view) - position:
            raise CorruptBatch(f"a snappy block claims {length} bytes, {len(view) - position} are there")
        parts.append(_decompress_snappy_block(view[position : position + length], room, max_bytes))
        room -= len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > room:
            raise _too_large(max_bytes)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise CorruptBatch(f"a snappy block of {len(block)} bytes claims to hold {size}")
        space = bytearray(size)
        return bytes(memoryview(space)[: cramjam.snappy.decompress_raw_into(block, space)])
    except cramjam.DecompressionError as error:
        raise _broken(error, max_bytes) from None


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _broken(error: Exception, max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"records cannot be decompressed, or only to more than {max_bytes} bytes: {error}")


def _too_large(max_bytes: int) -> CorruptBatch:
    return CorruptBatch(f"records decompress to more than {max_bytes} bytes")


def _unknown(codec: int) -> UnsupportedCodec:
    return UnsupportedCodec(f"compression codec {codec} is unknown: use none, gzip, snappy, lz4 or zstd")
