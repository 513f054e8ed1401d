"""What tests of groups of real clients have in common."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from kafka import KafkaConsumer

from . import raw_client

QUICK = {"group_initial_rebalance_delay_ms": "0", "group_min_session_timeout_ms": "500"}
TIMEOUT_S = 90.0


def produce(bootstrap: str, topic: str, values: range, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def consumer(bootstrap: str, group: str, **settings: object) -> Consumer:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **own,
        }
    )


def read(one: Consumer, count: int) -> list[int]:
    """The next `count` values."""
    found: list[int] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages came"
        message = one.poll(0.2)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
    return found


def until(holds: Callable[[], bool], *polled: Consumer) -> None:
    """Poll these consumers until something holds."""
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end
        for one in polled:
            one.poll(0.05)
        if not polled:
            time.sleep(0.05)


def group(bootstrap: str, name: str) -> Any:
    with raw_client.Connection(bootstrap) as connection:
        return connection.call(raw_client.DESCRIBE_GROUPS, 5, groups=[name]).groups[0]


def python_consumer(bootstrap: str, name: str, *topics: str, **settings: Any) -> KafkaConsumer:
    """A member that knows its topics before it joins: kafka-python may hand out nothing of one that it has not heard of
    yet, and find that in order until its metadata is old."""
    one = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=20_000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=1000,
        **settings,
    )
    until(lambda: all(one.partitions_for_topic(topic) for topic in topics))
    return one
