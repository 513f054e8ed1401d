"""Produce to the letter: idempotent sequences, batches that no honest client sends, acks, old versions."""

import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from . import batches, raw_client, subject
from .batches import Record
from .subject import Subject

Error = raw_client.Error


class Producer:
    """An idempotent producer whose sequence numbers the test chooses."""

    def __init__(self, connection: raw_client.Connection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        end = time.monotonic() + 60
        while True:
            answer = connection.call(raw_client.INIT_PRODUCER_ID, 4, producer_id=-1, producer_epoch=-1)
            if answer.error_code == Error.none:
                break
            assert answer.error_code == Error.coordinator_load_in_progress
            assert time.monotonic() < end
            time.sleep(0.05)
        self.id = answer.producer_id
        self.epoch = answer.producer_epoch

    def batch(self, sequence: int, count: int = 1, epoch: int | None = None) -> bytes:
        values = [b"%d" % ((sequence + at) % 2**31) for at in range(count)]
        epoch = self.epoch if epoch is None else epoch
        return batches.batch(values, producer_id=self.id, producer_epoch=epoch, base_sequence=sequence)

    def send(self, sequence: int, count: int = 1, epoch: int | None = None) -> Any:
        return raw_client.produce(self.connection, self.topic, self.batch(sequence, count, epoch))

    def stored(self) -> list[bytes | None]:
        return batches.values(raw_client.fetch(self.connection, self.topic).records)


@pytest.fixture
def producer(connection: raw_client.Connection, topic: str) -> Producer:
    return Producer(connection, topic)


def outcome(answer: Any) -> tuple[Error, int]:
    return answer.error_code, answer.base_offset


# Idempotent sequences


def test_a_duplicate_is_answered_with_the_first_offset_and_stored_once(producer: Producer) -> None:
    first, second = producer.batch(0, 3), producer.batch(3, 2)
    assert outcome(raw_client.produce(producer.connection, producer.topic, first)) == (Error.none, 0)
    assert outcome(raw_client.produce(producer.connection, producer.topic, second)) == (Error.none, 3)
    assert outcome(raw_client.produce(producer.connection, producer.topic, first)) == (Error.none, 0)
    assert outcome(raw_client.produce(producer.connection, producer.topic, second)) == (Error.none, 3)
    assert producer.stored() == [b"0", b"1", b"2", b"3", b"4"]


def test_the_last_five_batches_are_remembered(producer: Producer) -> None:
    for sequence in range(8):
        assert outcome(producer.send(sequence)) == (Error.none, sequence)
    for sequence in range(3, 8):
        assert outcome(producer.send(sequence)) == (Error.none, sequence)
    assert producer.send(2).error_code in (Error.out_of_order_sequence_number, Error.duplicate_sequence_number)
    assert len(producer.stored()) == 8


def test_a_gap_is_refused(producer: Producer) -> None:
    assert outcome(producer.send(0)) == (Error.none, 0)
    assert outcome(producer.send(2)) == (Error.out_of_order_sequence_number, -1)
    assert outcome(producer.send(1)) == (Error.none, 1)
    assert outcome(producer.send(2)) == (Error.none, 2)
    assert producer.stored() == [b"0", b"1", b"2"]


def test_part_of_a_batch_is_not_a_duplicate(producer: Producer) -> None:
    assert outcome(producer.send(0, 4)) == (Error.none, 0)
    for sequence, count in ((0, 2), (2, 2), (2, 4)):
        assert producer.send(sequence, count).error_code in (
            Error.out_of_order_sequence_number,
            Error.duplicate_sequence_number,
        )
    assert len(producer.stored()) == 4


def test_five_in_flight(producer: Producer) -> None:
    def flight(first: int) -> list[tuple[Error, int]]:
        sent = [
            producer.connection.send(
                raw_client.PRODUCE, 9, raw_client.produce_body(producer.topic, producer.batch(first + at))
            )
            for at in range(5)
        ]
        return [outcome(producer.connection.receive(pending).responses[0].partition_responses[0]) for pending in sent]

    expected = [(Error.none, offset) for offset in range(5)]
    assert flight(0) == expected
    assert flight(0) == expected
    assert flight(5) == [(Error.none, 5 + offset) for offset in range(5)]


def test_an_old_epoch_is_fenced(producer: Producer) -> None:
    assert outcome(producer.send(0, epoch=0)) == (Error.none, 0)
    assert outcome(producer.send(0, epoch=1)) == (Error.none, 1)
    assert outcome(producer.send(1, epoch=0)) == (Error.invalid_producer_epoch, -1)
    assert outcome(producer.send(1, epoch=1)) == (Error.none, 2)


def test_a_new_epoch_starts_at_zero(producer: Producer) -> None:
    assert outcome(producer.send(0, 3)) == (Error.none, 0)
    assert outcome(producer.send(3, epoch=1)) == (Error.out_of_order_sequence_number, -1)
    assert outcome(producer.send(0, epoch=1)) == (Error.none, 3)


def test_sequences_start_again_after_the_largest_number(producer: Producer) -> None:
    # A producer that the log does not know may begin anywhere: its first records may have expired.
    assert outcome(producer.send(2**31 - 2, 1)) == (Error.none, 0)
    wraps = producer.send(2**31 - 1, 3)
    assert outcome(wraps) == (Error.none, 1)
    assert outcome(producer.send(1)) == (Error.out_of_order_sequence_number, -1)
    assert outcome(producer.send(2)) == (Error.none, 4)


def test_each_partition_has_sequences_of_its_own(
    connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    producer = Producer(connection, new_topic(partitions=2))
    for partition in (0, 1):
        for sequence in (0, 1):
            sent = raw_client.produce(connection, producer.topic, producer.batch(sequence), partition=partition)
            assert outcome(sent) == (Error.none, sequence)


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_sequences_survive_a_restart(how: str, own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "kept")
    with raw_client.Connection(broker.bootstrap) as connection:
        producer = Producer(connection, "kept")
        for sequence in range(6):
            assert outcome(producer.send(sequence)) == (Error.none, sequence)
        assert outcome(producer.send(0, epoch=1)) == (Error.none, 6)
        second = Producer(connection, "kept")
        assert outcome(second.send(0, 2)) == (Error.none, 7)
    getattr(broker, how)()
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, "kept", 1)
        producer.connection = second.connection = connection
        assert outcome(producer.send(0, epoch=1)) == (Error.none, 6)
        assert outcome(producer.send(6, epoch=0)) == (Error.invalid_producer_epoch, -1)
        assert outcome(producer.send(2, epoch=1)) == (Error.out_of_order_sequence_number, -1)
        assert outcome(producer.send(1, epoch=1)) == (Error.none, 9)
        assert outcome(second.send(0, 2)) == (Error.none, 7)
        assert outcome(second.send(2)) == (Error.none, 10)
        third = connection.call(raw_client.INIT_PRODUCER_ID, 4, producer_id=-1, producer_epoch=-1)
        assert third.producer_id not in (producer.id, second.id)


# Batches that no honest client sends


def broken(name: str) -> bytes:
    good = batches.batch([b"one", b"two"])
    return {
        "wrong checksum": batches.batch([b"v"], crc=12345),
        "a flipped bit": good[:-1] + bytes([good[-1] ^ 1]),
        "cut off": good[:-1],
        "only a header": good[:61],
        "half a header": good[:30],
        "length too small": good[:8] + struct.pack(">i", 10) + good[12:],
        "length too large": good[:8] + struct.pack(">i", 1 << 30) + good[12:],
        "length negative": good[:8] + struct.pack(">i", -1) + good[12:],
        "bytes behind it": good + b"\x00\x00\x00",
        "message format 0": batches.batch([b"v"], magic=0),
        "message format 1": batches.batch([b"v"], magic=1),
        "message format 3": batches.batch([b"v"], magic=3),
        "count too large": batches.batch([b"v"], count=2),
        "count too small": batches.batch([b"v", b"w"], count=1),
        "count zero": batches.batch([], count=0, last_offset_delta=0),
        "count negative": batches.batch([b"v"], count=-1),
        "offset delta too large": batches.batch([b"v"], last_offset_delta=5),
        "offset delta negative": batches.batch([b"v"], last_offset_delta=-1),
        "control batch": batches.batch([b"v"], attributes=0x20),
        "unknown codec": batches.batch([b"v"], attributes=5),
        "two batches": good + good,
        "garbage": b"\xff" * 200,
    }[name]


REFUSALS = {
    "wrong checksum": {Error.corrupt_message},
    "a flipped bit": {Error.corrupt_message},
    "cut off": {Error.corrupt_message, Error.invalid_record},
    "only a header": {Error.corrupt_message, Error.invalid_record},
    "half a header": {Error.corrupt_message, Error.invalid_record},
    "length too small": {Error.corrupt_message},
    "length too large": {Error.corrupt_message, Error.invalid_record},
    "length negative": {Error.corrupt_message},
    "bytes behind it": {Error.corrupt_message, Error.invalid_record},
    "message format 0": {Error.invalid_record, Error.unsupported_for_message_format, Error.corrupt_message},
    "message format 1": {Error.invalid_record, Error.unsupported_for_message_format, Error.corrupt_message},
    "message format 3": {Error.invalid_record, Error.unsupported_for_message_format, Error.corrupt_message},
    "count too large": {Error.invalid_record},
    "count too small": {Error.invalid_record},
    "count zero": {Error.invalid_record},
    "count negative": {Error.invalid_record},
    "offset delta too large": {Error.invalid_record},
    "offset delta negative": {Error.invalid_record},
    "control batch": {Error.invalid_record},
    "unknown codec": {Error.unsupported_compression_type, Error.invalid_record, Error.corrupt_message},
    "two batches": {Error.invalid_record},
    "garbage": {Error.corrupt_message, Error.invalid_record},
}


KAFKA_IS_LENIENT = {"bytes behind it", "unknown codec"}
"""Apache Kafka drops the trailing bytes, and answers the unknown codec with UNKNOWN_SERVER_ERROR."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_broken_batch_is_refused_and_nothing_is_stored(name: str, broker: Subject, topic: str) -> None:
    if name in KAFKA_IS_LENIENT and not subject.IS_HEADRACE:
        pytest.skip("Apache Kafka differs")
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = raw_client.produce(connection, topic, broken(name))
        assert answer.error_code in REFUSALS[name]
        assert answer.base_offset == -1
        assert outcome(raw_client.produce(connection, topic, batches.batch([b"good"]))) == (Error.none, 0)
        assert batches.values(raw_client.fetch(connection, topic).records) == [b"good"]


@pytest.mark.parametrize("records", [None, b""])
def test_no_batch_at_all(records: bytes | None, connection: raw_client.Connection, topic: str) -> None:
    if records is None and not subject.IS_HEADRACE:
        pytest.skip("Apache Kafka never answers")
    answer = raw_client.produce(connection, topic, records)
    assert answer.error_code in (Error.invalid_record, Error.corrupt_message)
    assert outcome(raw_client.produce(connection, topic, batches.batch([b"good"]))) == (Error.none, 0)


@pytest.mark.parametrize("codec", [batches.GZIP, batches.SNAPPY, batches.LZ4, batches.ZSTD])
def test_a_compressed_batch_is_stored_as_it_came(codec: int, connection: raw_client.Connection, topic: str) -> None:
    sent = batches.batch([Record(b"v" * 500, b"k")] * 20, codec=codec)
    assert outcome(raw_client.produce(connection, topic, sent)) == (Error.none, 0)
    # All but base offset and leader epoch, which the broker stamps and the checksum leaves out.
    assert raw_client.fetch(connection, topic).records[17:] == sent[17:]


def test_zstd_needs_a_produce_that_knows_it(connection: raw_client.Connection, topic: str) -> None:
    zstd = batches.batch([b"v"], codec=batches.ZSTD)
    assert raw_client.produce(connection, topic, zstd, version=6).error_code == Error.unsupported_compression_type
    assert raw_client.produce(connection, topic, zstd, version=7).error_code == Error.none


# Where to, and acks


def test_unknown_topics_and_partitions(connection: raw_client.Connection, topic: str) -> None:
    batch = batches.batch([b"v"])
    assert (
        raw_client.produce(connection, "there-is-no-such-topic", batch).error_code == Error.unknown_topic_or_partition
    )
    assert raw_client.produce(connection, topic, batch, partition=9).error_code == Error.unknown_topic_or_partition
    answer = connection.call(raw_client.PRODUCE, 13, raw_client.produce_body("", batch, topic_id=uuid.uuid4()))
    assert answer.responses[0].partition_responses[0].error_code == Error.unknown_topic_id


def test_topics_by_id(connection: raw_client.Connection, topic: str) -> None:
    topic_id = raw_client.wait_topic(connection, topic, 1)
    answer = connection.call(
        raw_client.PRODUCE, 13, raw_client.produce_body("", batches.batch([b"v"]), topic_id=topic_id)
    )
    assert answer.responses[0].topic_id == topic_id
    assert outcome(answer.responses[0].partition_responses[0]) == (Error.none, 0)


def test_a_bad_partition_does_not_spoil_the_others(
    connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    data = [
        {"index": 0, "records": batches.batch([b"zero"])},
        {"index": 1, "records": batches.batch([b"bad"], crc=1)},
        {"index": 7, "records": batches.batch([b"nowhere"])},
    ]
    answer = connection.call(
        raw_client.PRODUCE, 9, acks=-1, timeout=10_000, topic_data=[{"name": topic, "partition_data": data}]
    )
    found = {one.index: outcome(one) for one in answer.responses[0].partition_responses}
    assert found == {0: (Error.none, 0), 1: (Error.corrupt_message, -1), 7: (Error.unknown_topic_or_partition, -1)}


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing(acks: int, connection: raw_client.Connection, topic: str) -> None:
    assert (
        raw_client.produce(connection, topic, batches.batch([b"v"]), acks=acks).error_code
        == Error.invalid_required_acks
    )
    assert raw_client.offset_at(connection, topic, -1).offset == 0


def test_acks_zero_gets_no_answer(connection: raw_client.Connection, topic: str) -> None:
    for number in range(5):
        connection.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batches.batch([b"%d" % number]), acks=0))
    # The next answer on the connection is that of the next request.
    assert raw_client.produce(connection, topic, batches.batch([b"5"])).base_offset == 5
    assert batches.values(raw_client.fetch(connection, topic).records) == [b"%d" % number for number in range(6)]


def test_acks_zero_that_fails_closes_the_connection(broker: Subject) -> None:
    with raw_client.Connection(broker.bootstrap) as connection:
        connection.send(
            raw_client.PRODUCE, 9, raw_client.produce_body("there-is-no-such-topic", batches.batch([b"v"]), acks=0)
        )
        assert connection.wait_closed(60)


def old_produce(version: int, topic: str) -> bytes:
    """A Produce request of version 0 to 2 with a message of format 0, as a client of 2015 sends it."""
    message = b"\x00" * 4 + b"\x00\x00" + struct.pack(">ii", -1, 1) + b"v"
    message_set = struct.pack(">qi", 0, len(message)) + message
    name = topic.encode()
    body = struct.pack(">hii", 1, 10_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(message_set)) + message_set
    return struct.pack(">hhih", raw_client.PRODUCE, version, 99, 4) + b"wire" + body


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_produce_is_refused_with_an_answer(version: int, connection: raw_client.Connection, topic: str) -> None:
    if not subject.IS_HEADRACE:
        pytest.skip("Apache Kafka advertises these versions, too, and closes the connection")
    connection.send_frame(old_produce(version, topic))
    frame = connection.receive_frame()
    name = topic.encode()
    head = struct.pack(">iih", 99, 1, len(name)) + name + struct.pack(">ii", 1, 0)
    assert frame.startswith(head)
    (error,) = struct.unpack_from(">h", frame, len(head))
    assert error == Error.unsupported_version
    tail = {0: 8, 1: 8 + 4, 2: 8 + 8 + 4}[version]
    assert len(frame) == len(head) + 2 + tail
    assert outcome(raw_client.produce(connection, topic, batches.batch([b"v"]))) == (Error.none, 0)


def test_a_transactional_batch_without_a_transaction_is_refused(producer: Producer) -> None:
    sent = batches.batch([b"v"], producer_id=producer.id, producer_epoch=0, base_sequence=0, attributes=0x10)
    assert raw_client.produce(producer.connection, producer.topic, sent).error_code != Error.none
    assert producer.stored() == []
