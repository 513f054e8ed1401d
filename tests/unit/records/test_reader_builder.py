"""Reading and building batches, against each other and against what two client libraries read and write."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from kafka.record.default_records import DefaultRecordBatch as KpBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KpBuilder

from headrace.model.errors import CorruptBatch, InvalidRecord, UnsupportedCodec
from headrace.records.batch import DELETE_HORIZON, check_batch, with_append_time
from headrace.records.builder import build_batch, retain
from headrace.records.compression import Codec
from headrace.records.reader import Record, decompressed, iter_records, spans

NOW = 1_700_000_000_000

RECORDS = [
    Record(0, NOW, b"key", b"value", (("h", b"1"), ("h", None), ("", b""))),
    Record(1, NOW + 5, None, b"no key"),
    Record(2, NOW - 100_000, b"tombstone", None),
    Record(3, NOW, b"", b"", (("größe", b"\xff\x00"),)),
    Record(4, NOW + 2**40, None, None),
    Record(5, NOW, b"k" * 300, b"v" * 70_000),
]


def at(records: list[Record], base: int) -> list[Record]:
    return [record._replace(offset=base + index) for index, record in enumerate(records)]


@pytest.mark.parametrize("codec", Codec)
def test_round_trip(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=42)
    header = check_batch(batch)
    assert (header.base_offset, header.last_offset, header.record_count, header.codec) == (42, 47, 6, codec)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2**40)
    assert list(iter_records(batch)) == at(RECORDS, 42)
    assert list(iter_records(memoryview(batch), header)) == at(RECORDS, 42)


@pytest.mark.parametrize("reader", [AioBatch, KpBatch])
@pytest.mark.parametrize("codec", Codec)
def test_clients_read_what_is_built(reader: Callable[[bytes], Any], codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    parsed = reader(batch)
    assert parsed.validate_crc()
    assert parsed.producer_id == 7
    got = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parsed]
    assert got == RECORDS


@pytest.mark.parametrize("builder", [AioBuilder, KpBuilder])
@pytest.mark.parametrize("codec", Codec)
def test_what_clients_build_is_read(builder: Callable[..., Any], codec: Codec) -> None:
    made = builder(
        magic=2, compression_type=int(codec), is_transactional=False,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for r in RECORDS:
        assert made.append(r.offset, r.timestamp, r.key, r.value, list(r.headers))
    batch = bytes(made.build())
    header = check_batch(batch)
    assert header.codec == codec
    assert list(iter_records(batch, header)) == RECORDS


def test_log_append_time_gives_every_record_the_time_of_arrival() -> None:
    batch = build_batch(RECORDS[:3])
    stamped = with_append_time(batch, check_batch(batch), NOW + 99)
    assert [record.timestamp for record in iter_records(stamped)] == [NOW + 99] * 3
    assert stamped == build_batch(RECORDS[:3], log_append_time_ms=NOW + 99)


@pytest.mark.parametrize("timestamps", [(-1, -1), (0, 2**63 - 1), (-(2**63), 2**63 - 1), (2**63 - 1, -(2**63))])
def test_timestamps_at_the_ends_of_the_type(timestamps: tuple[int, int]) -> None:
    records = [Record(index, timestamp, b"k", b"v") for index, timestamp in enumerate(timestamps)]
    assert list(iter_records(build_batch(records))) == records


def test_flags() -> None:
    header = check_batch(build_batch(RECORDS, transactional=True, control=True, leader_epoch=5))
    assert header.is_control
    assert header.is_transactional
    assert header.leader_epoch == 5


@pytest.mark.parametrize("codec", Codec)
def test_retained_records_keep_offsets_timestamps_and_sequences(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=10, producer_id=9, producer_epoch=2, base_sequence=50)
    header = check_batch(batch)
    data = decompressed(batch, header)
    kept = [span for span in spans(data, header) if span.offset_delta in (1, 2)]
    left = retain(header, data, kept)
    after = check_batch(left)
    assert list(iter_records(left)) == at(RECORDS, 10)[1:3]
    assert (after.base_offset, after.last_offset, after.last_sequence) == (10, 15, header.last_sequence)
    assert (after.record_count, after.codec, after.max_timestamp) == (2, codec, NOW + 5)


def test_a_delete_horizon_moves_into_the_base_timestamp_and_stays() -> None:
    batch = build_batch(RECORDS, base_offset=10)
    header = check_batch(batch)
    data = decompressed(batch, header)
    marked = retain(header, data, list(spans(data, header)), delete_horizon_ms=NOW + 86_400_000)
    after = check_batch(marked)
    assert after.attributes & DELETE_HORIZON
    assert after.base_timestamp == NOW + 86_400_000
    assert list(iter_records(marked)) == at(RECORDS, 10)
    assert [r.timestamp for r in AioBatch(marked)] == [r.timestamp for r in RECORDS]
    data = decompressed(marked, after)
    again = retain(after, data, list(spans(data, after)), delete_horizon_ms=1)
    assert again == marked


def test_an_emptied_batch_still_says_which_offsets_and_sequences_were_used() -> None:
    batch = build_batch(RECORDS, codec=Codec.ZSTD, base_offset=10, producer_id=9, producer_epoch=2, base_sequence=50)
    header = check_batch(batch)
    empty = retain(header, decompressed(batch, header), [])
    after = check_batch(empty)
    assert len(empty) == 61
    assert (after.base_offset, after.last_offset, after.last_sequence) == (10, 15, 55)
    assert (after.record_count, after.codec, after.max_timestamp) == (0, 0, header.max_timestamp)
    assert list(iter_records(empty)) == []
    assert list(AioBatch(empty)) == []


def damaged(change: Callable[[bytearray], None], records: list[Record] = RECORDS) -> bytes:
    """A batch changed after the header with the checksum made right again."""
    batch = bytearray(build_batch(records))
    change(batch)
    from crc32c import crc32c

    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def put(position: int, data: bytes) -> Callable[[bytearray], None]:
    def change(batch: bytearray) -> None:
        batch[position : position + len(data)] = data

    return change


ONE = [Record(0, NOW, b"k", b"v", (("h", b"x"),))]
# Byte 61 is the record's length; then attributes 62, timestamp 63, offset 64, key length 65, key 66, value length 67,
# value 68, header count 69, header key length 70, key 71, header value length 72, value 73.


@pytest.mark.parametrize(
    "change",
    [
        put(61, b"\x01"), put(61, b"\x7e"), put(61, b"\xff\xff\xff\xff\x0f"), put(61, b"\xff\xff\xff\xff\xff\x01"),
        put(63, b"\xff" * 11), put(64, b"\x02"), put(64, b"\x01"), put(65, b"\x03"), put(65, b"\x20"),
        put(67, b"\x05"), put(67, b"\x40"), put(69, b"\x01"), put(69, b"\x7e"), put(69, b"\x00"), put(69, b"\x04"),
        put(70, b"\x01"), put(72, b"\x03"), put(72, b"\x20"),
        put(57, (2).to_bytes(4, "big")), put(57, (0).to_bytes(4, "big")), 
        put(57, b"\x7f\xff\xff\xff"), put(57, b"\xff" * 4),
        lambda batch: batch.extend(b"\x00" * 9), lambda batch: batch.__delitem__(slice(-1, None)),
    ],
)  # fmt: skip
def test_malformed_records_are_refused(change: Callable[[bytearray], None]) -> None:
    batch = damaged(change, ONE)
    with pytest.raises(InvalidRecord):
        list(iter_records(batch))


def test_header_keys_that_are_not_text_are_shown_as_well_as_can_be() -> None:
    batch = damaged(put(71, b"\xff"), ONE)
    assert next(iter_records(batch)).headers == (("\ufffd", b"x"),)


def test_unknown_codec() -> None:
    with pytest.raises(UnsupportedCodec):
        list(iter_records(damaged(put(21, b"\x00\x05"))))


def test_damage_that_the_checksum_sees() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        list(iter_records(batch))


def test_records_before_a_malformed_one_are_given() -> None:
    batch = damaged(lambda batch: batch.__setitem__(-1, 2), RECORDS[:2])
    found = iter_records(batch)
    assert next(found) == RECORDS[0]
    with pytest.raises(InvalidRecord):
        next(found)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_are_refused(codec: Codec) -> None:
    batch = build_batch([Record(0, NOW, b"k", b"\0" * 5_000_000)], codec=codec)
    with pytest.raises(CorruptBatch):
        list(iter_records(batch, max_decompressed_bytes=1_000_000))
