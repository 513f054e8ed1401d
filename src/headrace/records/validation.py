"""Validates a producer's batches against the settings of their topic, after `check_batch` and before the append.

Only the header is read, so that the cost does not depend on the batch size, with one exception: records of a compacted
topic need a key, so there the records are decoded. The producer's state is not checked here.
"""

from headrace.config.topic import TopicSettings
from headrace.model.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge, UnsupportedCodec
from headrace.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    ENCRYPTED,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_counts,
    with_append_time,
)
from headrace.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from headrace.records.reader import decompressed, spans

ZSTD_FROM_VERSION = 7
"""The first Produce version whose clients are certain to support zstd."""

_BROKER_ONLY = CONTROL | DELETE_HORIZON | ENCRYPTED | LOG_APPEND_TIME
_HIGHEST_CODEC = int(Codec.ZSTD)
_ZSTD = int(Codec.ZSTD)


def validate_for_topic(
    batch: Buffer,
    header: BatchHeader,
    settings: TopicSettings,
    now_ms: int,
    *,
    request_version: int,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> Buffer:
    """`batch` itself, or a copy with log-append time if the topic has that; `RecordError` if it is invalid.

    `batch` is all that the producer sent for one partition, and `header` the result of `check_batch`.
    """
    size = header.size
    if len(batch) != size:
        raise InvalidRecord(f"{len(batch) - size} bytes follow the record batch: send exactly one batch per partition")
    if size > settings.max_message_bytes:
        raise RecordTooLarge(
            f"the record batch has {size} bytes, max.message.bytes of this topic is {settings.max_message_bytes}"
        )
    check_counts(header)
    attributes = header.attributes
    if attributes & _BROKER_ONLY:
        _refuse_attributes(attributes)
    codec = header.codec
    if codec > _HIGHEST_CODEC:
        raise UnsupportedCodec(f"compression codec {codec} is unknown: use none, gzip, snappy, lz4 or zstd")
    # With compression.type=zstd the broker itself may have compressed the batch.
    if codec == _ZSTD and request_version < ZSTD_FROM_VERSION and settings.compression_type != "zstd":
        raise UnsupportedCodec(f"zstd needs Produce version {ZSTD_FROM_VERSION}, the request has {request_version}")
    if header.producer_id >= 0:
        if header.producer_epoch < 0 or header.base_sequence < 0:
            raise InvalidRecord(
                f"the batch of producer {header.producer_id} has epoch {header.producer_epoch} and sequence "
                f"{header.base_sequence}: neither may be negative"
            )
    elif attributes & TRANSACTIONAL:
        raise InvalidRecord("a transactional batch needs a producer id")
    if settings.compacts:
        _require_keys(batch, header, max_decompressed_bytes)
    if settings.message_timestamp_type == "LogAppendTime":
        return with_append_time(batch, header, now_ms)
    latest = header.max_timestamp
    if latest > now_ms + settings.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"the timestamp {latest} lies {latest - now_ms} ms ahead of the broker's clock, "
            f"message.timestamp.after.max.ms is {settings.message_timestamp_after_max_ms}"
        )
    earliest = header.base_timestamp
    if earliest < now_ms - settings.message_timestamp_before_max_ms and earliest != NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"the timestamp {earliest} lies {now_ms - earliest} ms behind the broker's clock, "
            f"message.timestamp.before.max.ms is {settings.message_timestamp_before_max_ms}"
        )
    return batch


def _refuse_attributes(attributes: int) -> None:
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control records")
    if attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("clients may not send batches of log-append time: only the broker stamps them")
    if attributes & ENCRYPTED:
        raise InvalidRecord("clients may not set attribute 14: it marks batches that the broker has encrypted")
    raise InvalidRecord("clients may not set a delete horizon")


def _require_keys(batch: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> None:
    data = decompressed(batch, header, max_decompressed_bytes=max_decompressed_bytes)
    keyless = tuple(index for index, span in enumerate(spans(data, header)) if span.key_end < 0)
    if keyless:
        raise InvalidRecord(f"a compacted topic needs a key in every record, record {keyless[0]} has none", keyless)
