"""Readers of groups of the consumer protocol (KIP-848), as confluent-kafka has them."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

QUICK = {
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "45000",
    "group_initial_rebalance_delay_ms": "0",
}
TIMEOUT_S = 90.0


class Reader:
    """A consumer, with the values that it read and committed."""

    def __init__(self, bootstrap: str, group: str, *topics: str, **settings: object) -> None:
        self.values: list[int] = []
        own = {name.replace("_", "."): value for name, value in settings.items()}
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                **own,
            }
        )
        self.consumer.subscribe(list(topics))

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.values.append(int(message.value()))
        else:
            assert error.retriable() or error.code() in (
                KafkaError._ALL_BROKERS_DOWN,
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
                KafkaError.UNKNOWN_TOPIC_OR_PART,
            ), error

    def partitions(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}


def produce(bootstrap: str, topic: str, values: range, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=value % partitions)
    assert producer.flush(TIMEOUT_S) == 0


def until(holds: Callable[[], bool], *readers: Reader) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < end, [(sorted(one.partitions()), len(one.values)) for one in readers]
        for one in readers:
            one.poll()


def commit(consumer: Consumer, **what: Any) -> None:
    """Commit; again, if the member was told its next epoch while the commit was on its way."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        try:
            consumer.commit(asynchronous=False, **what)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH or time.monotonic() > end:
                raise
            time.sleep(0.05)


def described(bootstrap: str, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
