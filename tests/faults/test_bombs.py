"""Small batches that unpack to gigabytes. Where the broker must look inside, it looks no further than it can afford."""

import gzip
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from tests.faults.watch import MIB, memory_grows_at_most, undisturbed
from tests.interop import batches, raw_client
from tests.interop.subject import Subject

UNPACKED = 512 * MIB
"""A broker opens 128 MiB at most, besides the buffers of a codec and what the allocator has not returned yet."""
REFUSALS = (raw_client.Error.invalid_record, raw_client.Error.corrupt_message, raw_client.Error.message_too_large)


def bomb(codec: int) -> bytes:
    """Half a gigabyte of zeros in at most a megabyte, or as much of it as the codec gets into one."""
    if codec == batches.GZIP:
        return gzip.compress(bytes(UNPACKED), 9)
    if codec == batches.SNAPPY:
        # Snappy packs 21 to 1 at best, so this one lies: its frame claims half a gigabyte and holds 15 MB.
        packed = bytearray(cramjam.snappy.compress_raw(bytes(15 * MIB)))
        claim, number = bytearray(), UNPACKED
        while number >= 0x80:
            claim.append(number & 0x7F | 0x80)
            number >>= 7
        claim.append(number)
        size = next(at for at, byte in enumerate(packed) if byte < 0x80) + 1
        return bytes(claim + packed[size:])
    if codec == batches.LZ4:
        return lz4.frame.compress(bytes(200 * MIB), block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return zstandard.compress(bytes(UNPACKED), 19)


@pytest.fixture(
    scope="module",
    params=[batches.GZIP, batches.SNAPPY, batches.LZ4, batches.ZSTD],
    ids=["gzip", "snappy", "lz4", "zstd"],
)
def payload(request: pytest.FixtureRequest) -> tuple[int, bytes]:
    codec: int = request.param
    made = bomb(codec)
    assert len(made) < 1_040_000
    return codec, made


@pytest.mark.parametrize("settings", [{"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"}, {}])
def test_a_bomb_is_refused_or_stored_unopened(
    settings: dict[str, str], payload: tuple[int, bytes], broker: Subject, new_topic: Callable[..., str]
) -> None:
    codec, packed = payload
    topic = new_topic(**settings)
    sent = batches.batch([b""], codec=codec, payload=packed)
    with (
        undisturbed(broker),
        memory_grows_at_most(broker, 180 * MIB),
        raw_client.Connection(broker.bootstrap, timeout_s=60) as connection,
    ):
        answer = raw_client.produce(connection, topic, sent)
        if settings.get("cleanup_policy") == "compact":
            assert answer.error_code in REFUSALS
        # Looking for a time makes the broker look inside. It gives up long before this connection does.
        raw_client.offset_at(connection, topic, batches.now_ms() - 100_000)
        raw_client.offset_at(connection, topic, -3)


def test_a_compacted_topic_refuses_one_bomb_after_another(
    payload: tuple[int, bytes], broker: Subject, new_topic: Callable[..., str]
) -> None:
    codec, packed = payload
    topic = new_topic(cleanup_policy="compact")
    sent = batches.batch([b""], codec=codec, payload=packed)
    with (
        undisturbed(broker, slowest_s=30),
        memory_grows_at_most(broker, 200 * MIB),
        raw_client.Connection(broker.bootstrap, timeout_s=60) as connection,
    ):
        for _ in range(10):
            assert raw_client.produce(connection, topic, sent).error_code in REFUSALS
