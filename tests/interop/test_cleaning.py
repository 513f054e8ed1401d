"""Retention and compaction as clients and the command line see them, on a broker that looks after its logs often."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.testing import Broker
from tests.waiting import until


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"log.cleaner.backoff.ms": 50, "log.retention.check.interval.ms": 50, "log.cleaner.threads": 2}
    with Broker(settings=settings) as running:
        yield running


def create(broker: Broker, topic: str, **settings: object) -> None:
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(60)


def producer(broker: Broker, **options: object) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **options})


def read_all(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Everything in the topic's only partition, as a new consumer gets it."""
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while True:
            message = consumer.poll(60)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def low_watermark(broker: Broker, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        return int(low)
    finally:
        consumer.close()


def verify(broker: Broker) -> None:
    command = [sys.executable, "-m", "headrace", "log", "verify", str(broker.data_dir), "--records"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(broker: Broker, codec: str) -> None:
    create(broker, "prices", cleanup_policy="compact", segment_bytes=2000, min_cleanable_dirty_ratio=0.01)
    sender = producer(broker, **{"enable.idempotence": True, "compression.type": codec})
    for number in range(300):
        sender.produce("prices", key=f"key-{number % 5}", value=f"value-{number}")
        assert sender.flush(60) == 0
    found = until(lambda: len(all_of := read_all(broker, "prices")) < 60 and all_of)
    assert found is not False
    assert {key: value for _, key, value in found} == {
        f"key-{number % 5}".encode(): f"value-{number}".encode() for number in range(295, 300)
    }
    assert all(value == f"value-{offset}".encode() for offset, _, value in found)
    verify(broker)

    broker.restart()
    again = read_all(broker, "prices")
    assert again[-5:] == found[-5:]
    sender.produce("prices", key="key-0", value="after the restart")
    assert sender.flush(60) == 0
    assert read_all(broker, "prices")[-1] == (300, b"key-0", b"after the restart")


def test_tombstones_remove_keys(broker: Broker) -> None:
    create(
        broker, "prices", cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=0,
    )  # fmt: skip
    sender = producer(broker)
    sender.produce("prices", key="gone", value="x")
    sender.produce("prices", key="gone", value=None)
    assert sender.flush(60) == 0
    for number in range(10):
        sender.produce("prices", key=f"other-{number}", value="v" * 100)
        assert sender.flush(60) == 0

    def keys() -> set[bytes | None]:
        return {key for _, key, _ in read_all(broker, "prices")}

    until(lambda: b"gone" not in keys())
    assert keys() == {f"other-{number}".encode() for number in range(10)}


def test_retention_moves_the_start_of_a_topic(broker: Broker) -> None:
    create(broker, "events", segment_bytes=2000)
    sender = producer(broker)
    for number in range(50):
        sender.produce("events", value=f"{number:0200}")
        assert sender.flush(60) == 0
    assert len(read_all(broker, "events")) == 50
    entry = ConfigEntry("retention.bytes", "4000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "events", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
    low = until(lambda: low_watermark(broker, "events"))
    left = read_all(broker, "events")
    assert [offset for offset, _, _ in left] == list(range(left[0][0], 50))
    assert left[0][0] >= low
    verify(broker)
    broker.restart()
    assert read_all(broker, "events")[-1][0] == 49


def test_everything_past_retention_goes_also_from_the_active_segment(broker: Broker) -> None:
    create(broker, "events", retention_ms=1)
    sender = producer(broker)
    sender.produce("events", value="x")
    assert sender.flush(60) == 0
    until(lambda: low_watermark(broker, "events") == 1)
    sender.produce("events", value="y", timestamp=int(time.time() * 1000) + 600_000)
    assert sender.flush(60) == 0
    assert read_all(broker, "events") == [(1, None, b"y")]
