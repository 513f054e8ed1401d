"""A producer that sends many records of one queue as one batch, with group commit.

It has a librdkafka producer of its own, which is flushed explicitly and not by `linger.ms`. An idempotent producer has
one batch of a partition in flight and polls without a pause while another waits. So callers wait here meanwhile, and
the next lock holder sends everything queued (group commit).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.client.errors import ClientError, DeliveryFailed, Unreachable
from headrace.client.kafka.librdkafka import delivery_error, log, refused_delivery
from headrace.client.outgoing import ProducerRecord, RecordsOfBodies

CONFIG = {"linger.ms": 50}
"""Longer than it takes to enqueue a batch, which `flush` then sends at once."""

_MOST = 5_000
_MOST_BYTES = 700_000
"""The limit of one batch here: less than a batch of librdkafka can hold."""
_OVERHEAD_BYTES = 100
_SLICE_S = 0.2
_CLOSE_TIMEOUT_S = 65.0
"""A little more than `message.timeout.ms`: until then librdkafka answers for every message, stored or not."""


class _PendingRecords:
    """The records of one caller, and their delivery reports."""

    __slots__ = ("errors", "offsets", "records")

    def __init__(self, records: Sequence[ProducerRecord]) -> None:
        self.records = records
        self.offsets: list[int] = []
        self.errors: list[KafkaError] = []

    def report(self, error: KafkaError | None, stored: Any) -> None:
        if error is None:
            self.offsets.append(stored.offset())
        else:
            self.errors.append(error)

    @property
    def is_answered(self) -> bool:
        return len(self.offsets) + len(self.errors) >= len(self.records)


class BatchProducer:
    """Thread-safe. `make` creates the producer, with `CONFIG` among its settings, for the first send."""

    def __init__(self, make: Callable[[], Producer], bootstrap: str) -> None:
        self._make = make
        self._bootstrap = bootstrap
        self._producer: Producer | None = None
        self._turn = threading.Lock()
        self._waiting: deque[_PendingRecords] = deque()
        self._is_closed = False

    def send(self, records: Sequence[ProducerRecord]) -> list[int]:
        """Send records of one partition and wait until all are stored; their offsets. Raises `DeliveryFailed`, or
        `Unreachable`, with how many were not."""
        bunch = _PendingRecords(records)
        self._waiting.append(bunch)
        with self._turn:
            if self._is_closed:
                raise ClientError("the client is closed")
            if self._producer is None:
                self._producer = self._make()
            lot = _RecordBatch(self._producer)
            while self._waiting:
                lot.add(self._waiting.popleft())
            while not bunch.is_answered:
                lot.send()
        if not bunch.errors:
            # They are stored in the order of sending, whatever the order of the answers.
            return sorted(bunch.offsets)
        first = delivery_error(records[0].topic, bunch.errors[0], self._bootstrap)
        text = f"{len(bunch.errors)} of {len(records)} messages: {first}"
        if isinstance(first, DeliveryFailed):
            raise refused_delivery(bunch.errors[0], text, len(bunch.errors))
        raise Unreachable(text)

    def close(self) -> None:
        """Wait for the sends in flight, with a timeout, and close the producer."""
        is_mine = self._turn.acquire(timeout=_CLOSE_TIMEOUT_S)
        self._is_closed = True
        if is_mine:
            self._producer = None
            self._turn.release()
        elif self._producer is not None:
            self._producer.purge()


class _RecordBatch:
    """The records that are sent together."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._count = 0
        self._size_bytes = 0

    def add(self, bunch: _PendingRecords) -> None:
        done = 0
        produce, report, records = self._producer.produce, bunch.report, bunch.records
        try:
            if isinstance(records, RecordsOfBodies) and self._has_room(records.bodies):
                for body in records.bodies:
                    try:
                        produce(records.topic, body, None, records.partition, report)
                    except KafkaException as failure:
                        report(failure.args[0], None)
                    done += 1
                return
            for topic, value, key, headers, partition, _ in records:
                if self._count >= _MOST or self._size_bytes > _MOST_BYTES:
                    while self.send():
                        pass
                self._count += 1
                self._size_bytes += len(value or b"") + _OVERHEAD_BYTES
                try:
                    if headers:
                        produce(topic, value, key, partition, report, headers=headers)
                    else:
                        produce(topic, value, key, partition, report)
                except KafkaException as failure:
                    report(failure.args[0], None)
                done += 1
        except BaseException:
            # It may be another's, who must not wait for ever.
            for _ in range(done, len(bunch.records)):
                bunch.report(KafkaError(KafkaError._PURGE_QUEUE), None)
            raise

    def _has_room(self, bodies: Sequence[bytes]) -> bool:
        """Whether all of them fit into the batch; then they count."""
        count = self._count + len(bodies)
        size_bytes = self._size_bytes + sum(map(len, bodies)) + _OVERHEAD_BYTES * len(bodies)
        if count > _MOST or size_bytes > _MOST_BYTES:
            return False
        self._count, self._size_bytes = count, size_bytes
        return True

    def send(self) -> int:
        """Send the batch and wait for its delivery reports, interruptibly by Ctrl-C; returns how many are missing."""
        try:
            missing: int = self._producer.flush(_SLICE_S)
        except KafkaException as failure:
            # librdkafka raises a fatal error once, in any call that serves events. Its messages report it themselves.
            log.debug("the producer failed: %s", failure)
            missing = len(self._producer)
        if not missing:
            self._count = self._size_bytes = 0
        return missing
