"""Topics with a codec of their own: what comes in another one is stored in theirs. Holds for Apache Kafka, too."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from . import batches, raw_client
from .batches import Record
from .raw_client import Error
from .subject import Subject

CODECS = {
    "uncompressed": batches.NONE,
    "gzip": batches.GZIP,
    "snappy": batches.SNAPPY,
    "lz4": batches.LZ4,
    "zstd": batches.ZSTD,
}


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_becomes_that_of_the_topic(
    connection: raw_client.Connection, new_topic: Callable[..., str], name: str
) -> None:
    topic = new_topic(compression_type=name)
    sent = []
    for size in (10, 20_000):
        for codec in range(5):
            records = [Record(bytes([codec]) * size, b"k", [("h", b"v")]) for _ in range(3)]
            assert raw_client.produce(connection, topic, batches.batch(records, codec=codec)).error_code == Error.none
            sent += [(record.key, record.value, tuple(record.headers)) for record in records]
    stored = list(
        batches.parse(raw_client.fetch(connection, topic, partition_max_bytes=1 << 24, max_bytes=1 << 24).records)
    )
    assert {batch.codec for batch in stored} == {CODECS[name]}
    records = [record for batch in stored for record in batch.records]
    assert [(record.key, record.value, tuple(record.headers)) for record in records] == sent
    assert [record.offset for record in records] == list(range(30))


@pytest.mark.parametrize(("name", "fast", "small"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -50, 19)])
def test_a_level_makes_batches_smaller(
    connection: raw_client.Connection, new_topic: Callable[..., str], name: str, fast: int, small: int
) -> None:
    words = [b"%x" % (number * number % 9973) for number in range(20_000)]
    sizes = []
    for level in (fast, small):
        topic = new_topic(compression_type=name, **{f"compression_{name}_level": str(level)})
        batch = batches.batch([Record(b" ".join(words))])
        assert raw_client.produce(connection, topic, batch).error_code == Error.none
        records = raw_client.fetch(connection, topic, partition_max_bytes=1 << 24, max_bytes=1 << 24).records
        (stored,) = batches.parse(records)
        assert (stored.codec, stored.records[0].value) == (CODECS[name], b" ".join(words))
        sizes.append(len(records))
    assert sizes[1] < 0.95 * sizes[0]


def test_sequences_are_kept_and_duplicates_known(
    connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(compression_type="gzip")
    end = time.monotonic() + 60
    while True:
        made = connection.call(
            raw_client.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": 60_000}
        )
        if made.error_code is not Error.coordinator_load_in_progress:
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    assert made.error_code is Error.none
    by = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    # Sent one behind the other without waiting: large ones, which take longer, and small ones.
    pending = []
    for sequence, size in enumerate((300_000, 10, 300_000, 10)):
        batch = batches.batch(
            [b"x" * size], codec=batches.LZ4 if size > 10 else batches.NONE, base_sequence=sequence, **by
        )
        pending.append(connection.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batch)))
    answers = [connection.receive(one).responses[0].partition_responses[0] for one in pending]
    assert [(one.error_code, one.base_offset) for one in answers] == [(Error.none, at) for at in range(4)]
    again = batches.batch([b"x" * 10], base_sequence=1, **by)
    answer = raw_client.produce(connection, topic, again)
    assert (answer.error_code, answer.base_offset) == (Error.none, 1)
    late = batches.batch([b"x"], base_sequence=9, **by)
    assert raw_client.produce(connection, topic, late).error_code == Error.out_of_order_sequence_number


def test_the_size_is_limited_before_and_after(connection: raw_client.Connection, new_topic: Callable[..., str]) -> None:
    topic = new_topic(compression_type="uncompressed", max_message_bytes="10000")
    large = [b"x" * 20_000]
    assert (
        raw_client.produce(connection, topic, batches.batch(large, codec=batches.GZIP)).error_code
        == Error.message_too_large
    )
    assert (
        raw_client.produce(connection, topic, batches.batch([b"x" * 5_000], codec=batches.GZIP)).error_code
        == Error.none
    )
    packed = new_topic(compression_type="gzip", max_message_bytes="10000")
    assert raw_client.produce(connection, packed, batches.batch(large)).error_code == Error.message_too_large


def test_what_cannot_be_decompressed_is_refused(
    connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(compression_type="zstd")
    broken = batches.batch([b"x"], codec=batches.GZIP, payload=b"not gzip at all")
    assert raw_client.produce(connection, topic, broken).error_code in (
        Error.corrupt_message,
        Error.invalid_record,
        Error.unknown_server_error,
    )
    wrong_sum = batches.batch([b"x"], crc=7)
    assert raw_client.produce(connection, topic, wrong_sum).error_code == Error.corrupt_message
    assert raw_client.produce(connection, topic, batches.batch([b"x"])).error_code == Error.none


def test_old_clients_write_to_a_topic_of_zstd(connection: raw_client.Connection, new_topic: Callable[..., str]) -> None:
    topic = new_topic(compression_type="zstd")
    assert raw_client.produce(connection, topic, batches.batch([b"x"]), version=3).error_code == Error.none
    (stored,) = batches.parse(raw_client.fetch(connection, topic, version=10).records)
    assert stored.codec == batches.ZSTD


def test_transactions_and_append_time_go_with_a_codec(broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2, compression_type="lz4", message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "compression.type": "gzip"})
    producer.init_transactions(60)
    for commits in (True, False, True):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, f"{commits}-{number}" + "x" * 200, partition=number % 2)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        | {"isolation.level": "read_committed", "enable.partition.eof": True}
    )
    with closing(reader):
        reader.subscribe([topic])
        found: list[str] = []
        for _ in range(2000):
            message = reader.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value().decode().rstrip("x"))
            if len(found) == 100:
                break
    assert sorted(found) == sorted(2 * [f"True-{number}" for number in range(50)])
