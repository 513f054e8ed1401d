"""What a topic accepts from producers, and the error each refusal has."""

from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from headrace.config.topic import TopicSettings
from headrace.model.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, RecordTooLarge, UnsupportedCodec
from headrace.records.batch import DELETE_HORIZON, check_batch
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.reader import Record, iter_records
from headrace.records.validation import validate_for_topic

NOW = 1_700_000_000_000
PLAIN = TopicSettings()
COMPACTED = replace(PLAIN, cleanup_policy=("compact",))


def record(key: bytes | None = b"k", value: bytes | None = b"v", timestamp: int = NOW) -> Record:
    return Record(0, timestamp, key, value)


def validate(batch: bytes, settings: TopicSettings = PLAIN, *, version: int = 9, **options: Any) -> Any:
    return validate_for_topic(batch, check_batch(batch), settings, NOW, request_version=version, **options)


def patched(batch: bytes, position: int, data: bytes) -> bytes:
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("settings", [PLAIN, COMPACTED])
def test_an_ordinary_batch_passes_as_the_very_same_buffer(codec: Codec, settings: TopicSettings) -> None:
    batch = build_batch([record(), record(value=None)], codec=codec)
    assert validate(batch, settings) is batch


def test_log_append_time_stamps_a_copy() -> None:
    batch = build_batch([record(timestamp=1), record(timestamp=2)])
    stamped = validate(batch, replace(PLAIN, message_timestamp_type="LogAppendTime"))
    assert [found.timestamp for found in iter_records(stamped)] == [NOW, NOW]


def test_trailing_bytes_and_second_batches() -> None:
    batch = build_batch([record()])
    for more in (b"\0", batch):
        with pytest.raises(InvalidRecord, match="exactly one batch"):
            validate(batch + more)


def test_size() -> None:
    batch = build_batch([record(value=b"v" * 1000)])
    assert validate(batch, replace(PLAIN, max_message_bytes=len(batch))) is batch
    with pytest.raises(RecordTooLarge, match=str(len(batch))):
        validate(batch, replace(PLAIN, max_message_bytes=len(batch) - 1))


@pytest.mark.parametrize(("count", "last_delta"), [(0, 0), (0, -1), (-1, -2), (2, 0), (1, 1), (2**31 - 1, 2**31 - 1)])
def test_counts_must_agree(count: int, last_delta: int) -> None:
    batch = patched(build_batch([record()]), 57, count.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidRecord):
        validate(patched(batch, 23, last_delta.to_bytes(4, "big", signed=True)))


def test_what_only_the_broker_may_set() -> None:
    with pytest.raises(InvalidRecord, match="control"):
        validate(build_batch([record()], control=True))
    with pytest.raises(InvalidTimestamp, match="log-append"):
        validate(build_batch([record()], log_append_time_ms=NOW))
    with pytest.raises(InvalidRecord, match="horizon"):
        validate(patched(build_batch([record()]), 21, DELETE_HORIZON.to_bytes(2, "big")))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(UnsupportedCodec, match=str(codec)):
        validate(patched(build_batch([record()]), 21, codec.to_bytes(2, "big")))


def test_zstd_only_from_clients_that_know_it() -> None:
    batch = build_batch([record()], codec=Codec.ZSTD)
    assert validate(batch, version=7) is batch
    with pytest.raises(UnsupportedCodec, match="version 7"):
        validate(batch, version=6)


def test_timestamps_too_far_ahead() -> None:
    limit = NOW + PLAIN.message_timestamp_after_max_ms
    assert validate(build_batch([record(), record(timestamp=limit)]))
    with pytest.raises(InvalidTimestamp, match="after"):
        validate(build_batch([record(), record(timestamp=limit + 1)]))


def test_timestamps_too_far_behind() -> None:
    settings = replace(PLAIN, message_timestamp_before_max_ms=1000)
    assert validate(build_batch([record(timestamp=NOW - 1000)]), settings)
    assert validate(build_batch([record(timestamp=-1)]), settings)
    with pytest.raises(InvalidTimestamp, match="before"):
        validate(build_batch([record(timestamp=NOW - 1001)]), settings)
    assert validate(build_batch([record(timestamp=0)]))


def test_compacted_topics_name_every_record_without_a_key() -> None:
    batch = build_batch([record(), record(None), record(b""), record(None)], codec=Codec.LZ4)
    assert validate(batch) is batch
    with pytest.raises(InvalidRecord, match="record 1 ") as refused:
        validate(batch, COMPACTED)
    assert refused.value.record_indexes == (1, 3)
    with pytest.raises(InvalidRecord):
        validate(batch, replace(PLAIN, cleanup_policy=("delete", "compact")))


def test_compacted_topics_refuse_what_cannot_be_read() -> None:
    with pytest.raises(CorruptBatch):
        validate(build_batch([record(value=b"\0" * 10_000)], codec=Codec.ZSTD), COMPACTED, max_decompressed_bytes=1000)
    with pytest.raises(InvalidRecord):
        validate(patched(build_batch([record()]), 61, b"\x00"), COMPACTED)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_idempotent_batches_need_epoch_and_sequence(epoch: int, sequence: int) -> None:
    assert validate(build_batch([record()], producer_id=0, producer_epoch=0, base_sequence=0))
    with pytest.raises(InvalidRecord, match="producer 4"):
        validate(build_batch([record()], producer_id=4, producer_epoch=epoch, base_sequence=sequence))


def test_transactional_batches_need_a_producer() -> None:
    with pytest.raises(InvalidRecord, match="transactional"):
        validate(build_batch([record()], transactional=True))
