"""Finding a place in a log: by offset, by time, at either end."""

import asyncio
import subprocess
import time
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from . import batches, clients, raw_client
from .batches import Record
from .clients import Client
from .subject import Subject

FIRST_MS = batches.now_ms() - 600_000
COUNT = 20


@pytest.fixture
def timeline(broker: Subject, topic: str) -> str:
    """Records 0 to 19, one per second from `FIRST_MS`, in four batches."""
    with raw_client.Connection(broker.bootstrap) as connection:
        for start in range(0, COUNT, 5):
            some = [Record(b"%d" % at, timestamp_ms=FIRST_MS + at * 1000) for at in range(start, start + 5)]
            assert raw_client.produce(connection, topic, batches.batch(some)).base_offset == start
    return topic


@pytest.mark.parametrize("offset", [0, 7, 19])
@pytest.mark.parametrize("reader", clients.parameters())
def test_seek_by_offset(reader: Client, offset: int, broker: Subject, timeline: str) -> None:
    found = reader.read(broker.bootstrap, timeline, COUNT - offset, offset=offset)
    assert [record.offset for record in found] == list(range(offset, COUNT))
    assert [record.value for record in found] == [b"%d" % at for at in range(offset, COUNT)]


# A time before the log is its start, one between two records is the later one, one past the end is nothing.
TIMES = [
    (0, 0),
    (FIRST_MS, 0),
    (FIRST_MS + 7000, 7),
    (FIRST_MS + 7001, 8),
    (FIRST_MS + 19_000, 19),
    (FIRST_MS + 19_001, None),
]


def test_confluent_finds_offsets_by_time(broker: Subject, timeline: str) -> None:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})) as consumer:
        for when, expected in TIMES:
            (found,) = consumer.offsets_for_times([TopicPartition(timeline, 0, when)], 60)
            assert found.error is None
            assert found.offset == (OFFSET_END if expected is None else expected), when


def test_kafka_python_finds_offsets_by_time(broker: Subject, timeline: str) -> None:
    where = PythonPartition(timeline, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        for when, expected in TIMES:
            found = consumer.offsets_for_times({where: when})[where]
            assert (found and found.offset) == expected, when
            if expected is not None:
                assert found.timestamp == FIRST_MS + expected * 1000


def test_aiokafka_finds_offsets_by_time(broker: Subject, timeline: str) -> None:
    async def find() -> list[int | None]:
        where = AioPartition(timeline, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            answers = [(await consumer.offsets_for_times({where: when}))[where] for when, _ in TIMES]
            return [answer and answer.offset for answer in answers]
        finally:
            await consumer.stop()

    assert asyncio.run(find()) == [expected for _, expected in TIMES]


@clients.NO_KCAT
def test_kcat_reads_between_two_times(broker: Subject, timeline: str) -> None:
    span = ["-o", f"s@{FIRST_MS + 4500}", "-o", f"e@{FIRST_MS + 9500}"]
    command = ["kcat", "-C", "-q", "-e", "-b", broker.bootstrap, "-t", timeline, "-p", "0", *span, "-f", "%o,"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert done.stdout == b"5,6,7,8,9,"


def test_both_ends(broker: Subject, timeline: str) -> None:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(timeline, 0), 60) == (0, COUNT)
    where = PythonPartition(timeline, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        assert consumer.beginning_offsets([where]) == {where: 0}
        assert consumer.end_offsets([where]) == {where: COUNT}
        consumer.assign([where])
        consumer.seek_to_end(where)
        assert consumer.position(where) == COUNT


@clients.NO_KCAT
def test_kcat_reads_the_tail(broker: Subject, timeline: str) -> None:
    command = ["kcat", "-C", "-q", "-e", "-b", broker.bootstrap, "-t", timeline, "-p", "0", "-o", "-3", "-f", "%s,"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert done.stdout == b"17,18,19,"


def test_latest_sees_only_what_comes_later(broker: Subject, timeline: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    with closing(Consumer(settings | {"enable.partition.eof": True})) as consumer:
        consumer.assign([TopicPartition(timeline, 0, OFFSET_END)])
        end = consumer.poll(60)
        assert end is not None
        assert end.error().name() == "_PARTITION_EOF"
        clients.Confluent().write(broker.bootstrap, timeline, [Record(b"later")])
        message = consumer.poll(60)
        assert message is not None
        assert (message.offset(), message.value()) == (COUNT, b"later")


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", COUNT)])
def test_an_offset_out_of_range_is_reset(reset: str, expected: int, broker: Subject, timeline: str) -> None:
    where = PythonPartition(timeline, 0)
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset=reset)) as consumer:
        consumer.assign([where])
        consumer.seek(where, 1000)
        end = time.monotonic() + 60
        seen: list[int] = []
        while not seen and consumer.position(where) == 1000 and time.monotonic() < end:
            seen = [message.offset for message in consumer.poll(100, max_records=1).get(where, [])]
        assert (seen[0] if seen else consumer.position(where)) == expected
