"""Clients of a topic that is mirrored: a producer that remembers what was acknowledged, and a group that commits."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

Place = tuple[int, int]
"""A partition and an offset."""
_RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}
_COMMIT_EVERY_S = 0.2
_END_WITHIN_S = 120.0
_READ_ONLY = (KafkaError.INVALID_REQUEST, KafkaError._PURGE_QUEUE)
"""The answer for a mirror topic. Idempotent messages behind one that is refused fail with it."""
_READ_WITHIN_S = 120.0


class Acked(NamedTuple):
    value: bytes
    at_s: float
    """By the wall clock, when the acknowledgement was seen."""


class Load:
    """Sends numbered messages at a steady rate, acks=all and idempotent, until it is stopped.

    With `until_refused` it also ends when the topic becomes read-only.
    """

    def __init__(
        self, bootstrap: str, topic: str, per_second: int, value_bytes: int = 200, *, until_refused: bool = False
    ) -> None:
        self.acked: dict[Place, Acked] = {}
        self.failed: list[str] = []
        self.is_refused = False
        self._until_refused = until_refused
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**_RECONNECT, **settings})
        self._topic, self._every_s, self._value_bytes = topic, 1 / per_second, value_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._every_s):
            number += 1
            value = (b"%d " % number).ljust(self._value_bytes, b".")
            self._producer.produce(self._topic, value, headers={"n": b"%d" % number}, on_delivery=self._delivered)
            self._producer.poll(0)

    def stop(self) -> None:
        """Wait until everything that was sent is answered."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(_END_WITHIN_S) == 0, "some messages are not answered"
        assert self.failed == []

    def _delivered(self, error: object, message: Message) -> None:
        if self._until_refused and isinstance(error, KafkaError) and error.code() in _READ_ONLY:
            self.is_refused = True
            self._stopped.set()
        elif error is not None:
            self.failed.append(str(error))
        else:
            place = message.partition() or 0, message.offset() or 0
            self.acked[place] = Acked(message.value() or b"", time.time())


class GroupReader:
    """Reads all partitions and commits for a group, until it is stopped: from the beginning, or from offsets."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, partitions: int, first: Sequence[int] | None = None
    ) -> None:
        self.handled = [0] * partitions if first is None else list(first)
        """The next offset of each partition."""
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
        self._consumer = Consumer({**_RECONNECT, **settings, "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition(topic, index, at) for index, at in enumerate(self.handled)])
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        committed_s = 0.0
        while not self._stopped.is_set():
            for message in self._consumer.consume(100, 0.1):
                if message.error() is None:
                    self.handled[message.partition() or 0] = (message.offset() or 0) + 1
            if time.monotonic() - committed_s > _COMMIT_EVERY_S:
                committed_s = time.monotonic()
                self._commit()

    def _commit(self) -> None:
        places = [TopicPartition(self._topic, index, at) for index, at in enumerate(self.handled) if at]
        try:
            if places:
                self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            return  # The coordinator moves: the next one says the same and more.

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()


def committed(bootstrap: str, topic: str, group: str, partitions: int) -> list[int]:
    """The committed offset of each partition, 0 for none or while nobody answers."""
    places = [TopicPartition(topic, index) for index in range(partitions)]
    with closing(Consumer({**_RECONNECT, "bootstrap.servers": bootstrap, "group.id": group})) as consumer:
        try:
            return [max(0, place.offset) for place in consumer.committed(places, timeout=10)]
        except KafkaException:
            return [0] * partitions


def read(bootstrap: str, topic: str, first: list[int], ends: Mapping[int, int]) -> dict[Place, bytes]:
    """The messages of each partition from an offset up to an end."""
    found: dict[Place, bytes] = {}
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    with closing(Consumer({**_RECONNECT, **settings, "enable.partition.eof": True})) as consumer:
        left = {index for index, end in ends.items() if first[index] < end}
        consumer.assign([TopicPartition(topic, index, first[index]) for index in sorted(left)])
        ends_at = time.monotonic() + _READ_WITHIN_S
        while left:
            assert time.monotonic() < ends_at, f"partitions {left} of {topic} cannot be read to their ends {ends}"
            for message in consumer.consume(1000, 0.5):
                partition, offset = message.partition() or 0, message.offset() or 0
                if message.error() is None and offset < ends[partition]:
                    found[partition, offset] = message.value() or b""
                if offset + (message.error() is None) >= ends[partition]:
                    left.discard(partition)
    return found


def send(bootstrap: str, topic: str, partitions: int, count: int, text: str, value_bytes: int) -> dict[Place, bytes]:
    """Send messages at once, all acknowledged: their values by place."""
    sent: dict[Place, bytes] = {}

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        sent[message.partition() or 0, message.offset() or 0] = message.value() or b""

    producer = Producer({**_RECONNECT, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        value = f"{text} {number} ".encode().ljust(value_bytes, b".")
        producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(_END_WITHIN_S) == 0, "some messages are not answered"
    assert len(sent) == count
    return sent


class SetAside(NamedTuple):
    """What is in a divergent topic."""

    values: dict[Place, set[bytes]]
    """By the partition and offset that headers name."""
    again: int
    """Messages that are there another time."""


def set_aside(bootstrap: str, topic: str, partitions: int) -> SetAside:
    """Read the divergent topic of `topic` to its end."""
    values: dict[Place, set[bytes]] = {}
    ended, count = set[int](), 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    with closing(Consumer({**_RECONNECT, **settings, "enable.partition.eof": True})) as consumer:
        consumer.assign([TopicPartition(f"{topic}.divergent", index, 0) for index in range(partitions)])
        ends_at = time.monotonic() + _READ_WITHIN_S
        while len(ended) < partitions:
            assert time.monotonic() < ends_at, f"{topic}.divergent cannot be read to its end"
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition() or 0)
                    continue
                count += 1
                headers = dict(message.headers() or [])
                assert headers["headrace.divergent.topic"] == topic.encode()
                place = int(headers["headrace.divergent.partition"]), int(headers["headrace.divergent.offset"])
                values.setdefault(place, set()).add(message.value() or b"")
    return SetAside(values, count - len(values))
