"""Batches that were built are read back; any other bytes end in a `RecordError`, and in little memory."""

import contextlib
import tracemalloc
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples
from tests.property.records.mutation import mutate

from headrace.config.topic import TopicSettings
from headrace.model.errors import DataKeyMissing, RecordError
from headrace.records.batch import BatchHeader, check_batch
from headrace.records.builder import build_batch, retain
from headrace.records.compression import Codec, compress, decompress
from headrace.records.reader import Record, decompressed, iter_records, records_in, spans
from headrace.records.validation import validate_for_topic

NOW = 1_700_000_000_000
CAP = 200_000
COMPACTED = replace(TopicSettings(), cleanup_policy=("compact",))

payloads = st.none() | st.binary(max_size=300)
timestamps = st.integers(NOW - 10**7, NOW + 10**6) | st.integers(-(2**63), 2**63 - 1)
headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)
records = st.lists(st.builds(Record, st.just(0), timestamps, payloads, payloads, headers), max_size=8)
codecs = st.sampled_from(list(Codec))


def resealed(batch: bytearray) -> bytes:
    """With length and checksum right, so that what lies behind them is reached."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big", signed=True)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def survive(batch: bytes) -> None:
    """Go through every door that bytes from outside come through; only an error of records may come out."""
    with contextlib.suppress(RecordError, DataKeyMissing):
        list(iter_records(batch, max_decompressed_bytes=CAP))
    with contextlib.suppress(RecordError, DataKeyMissing):
        header = check_batch(batch)
        validate_for_topic(batch, header, COMPACTED, NOW, request_version=9, max_decompressed_bytes=CAP)
        data = decompressed(batch, header, max_decompressed_bytes=CAP)
        agree(data, header)
        retain(header, data, list(spans(data, header))[::2], delete_horizon_ms=NOW)


def agree(data: bytes, header: BatchHeader) -> None:
    """The quick way to read records and the way to find their places see the same, up to the same mistake."""
    quick: list[object] = []
    found: list[object] = []
    try:
        for record in records_in(data, header):
            quick.append((record.offset - header.base_offset, record.key, record.value))
    except RecordError as error:
        quick.append(str(error))
    try:
        for span in spans(data, header):
            key = None if span.key_end < 0 else data[span.key_start : span.key_end]
            value = None if span.value_end < 0 else data[span.value_start : span.value_end]
            found.append((span.offset_delta, key, value))
    except RecordError as error:
        found.append(str(error))
    assert quick == found


@given(records, codecs, st.integers(0, 2**62))
def test_built_batches_are_read_back(made: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(made, codec=codec, base_offset=base_offset)
    assert list(iter_records(batch)) == [r._replace(offset=base_offset + i) for i, r in enumerate(made)]


@settings(max_examples=examples(400))
@given(
    st.lists(st.tuples(st.integers(-1, 200), st.none() | st.binary(max_size=150)), max_size=80).flatmap(
        lambda made: st.tuples(st.just(made), st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255))))
    )
)
def test_plain_records_are_read_alike_however_they_are_read(
    case: tuple[list[tuple[int, bytes | None]], list[tuple[int, int]]],
) -> None:
    made, changes = case
    batch = build_batch([Record(0, NOW + time, None, value) for time, value in made])
    header = check_batch(batch)
    data = bytearray(decompressed(batch, header))
    agree(bytes(data), header)
    for position, byte in changes:
        if data:
            data[position % len(data)] = byte
    agree(bytes(data), header)


@given(records, codecs, st.data(), st.none() | timestamps)
def test_retained_records_are_the_same_records(
    made: list[Record], codec: Codec, data: st.DataObject, horizon: int | None
) -> None:
    batch = build_batch(made, codec=codec, base_offset=7)
    header = check_batch(batch)
    inside = decompressed(batch, header)
    chosen = data.draw(st.sets(st.integers(0, max(len(made) - 1, 0))))
    kept = [span for span in spans(inside, header) if span.offset_delta in chosen]
    left = retain(header, inside, kept, delete_horizon_ms=horizon)
    assert list(iter_records(left)) == [r for r in iter_records(batch) if r.offset - 7 in chosen]
    assert check_batch(left).last_offset == header.last_offset


@settings(max_examples=examples(400))
@given(records, codecs, st.data())
def test_mutated_batches_end_in_a_record_error(made: list[Record], codec: Codec, data: st.DataObject) -> None:
    batch = bytearray(build_batch(made, codec=codec))
    mutate(batch, data)
    survive(bytes(batch))
    survive(resealed(batch))


@settings(max_examples=examples(400))
@given(codecs, st.binary(max_size=400), st.integers(-5, 2**31 - 1), st.booleans())
def test_random_records_end_in_a_record_error(codec: Codec, noise: bytes, count: int, packed: bool) -> None:
    batch = bytearray(build_batch([], codec=codec))[:61] + (compress(codec, noise) if packed else noise)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    batch[23:27] = max(count - 1, 0).to_bytes(4, "big", signed=True)
    survive(resealed(batch))


@given(st.binary(max_size=200))
def test_random_bytes_end_in_a_record_error(noise: bytes) -> None:
    survive(noise)


@given(st.integers(0, 7), st.binary(max_size=300))
def test_random_streams_end_in_a_record_error(codec: int, noise: bytes) -> None:
    with contextlib.suppress(RecordError):
        assert len(decompress(codec, noise, CAP)) <= CAP
    with contextlib.suppress(RecordError):
        assert len(decompress(Codec.SNAPPY, b"\x82SNAPPY\x00" + bytes(8) + noise, CAP)) <= CAP


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_takes_no_more_memory_than_the_cap(codec: Codec) -> None:
    bomb = bytearray(build_batch([], codec=codec))[:61] + compress(codec, bytes(64 * 1024 * 1024))
    bomb[57:61] = (1).to_bytes(4, "big")
    batch = resealed(bomb)
    header: BatchHeader = check_batch(batch)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            list(iter_records(batch, header, max_decompressed_bytes=1 << 20))
        assert tracemalloc.get_traced_memory()[1] < len(batch) + (4 << 20)
    finally:
        tracemalloc.stop()
