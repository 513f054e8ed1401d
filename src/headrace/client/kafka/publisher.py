"""Publishes messages and reports their delivery.

One librdkafka producer and one thread that serves its delivery reports. Idempotent and `acks=all` by default: a message
that was acknowledged is stored once, on disk, in the order of sending per partition.
"""

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.client.errors import ClientError, Unreachable
from headrace.client.kafka.librdkafka import create_client, delivery_error, explain, log, refused_delivery, warm_up
from headrace.client.outgoing import Outgoing, ProducerRecord, encode
from headrace.client.partitioners import Partitioner, by_key
from headrace.model.queued import MessageIds

if TYPE_CHECKING:
    from headrace.client.otel import MessagingTracer

_POLL_S = 0.1
_ROOM_POLL_S = 0.05
_COUNTS_FRESH_S = 30.0
_COUNT_TIMEOUT_S = 30.0
_FLUSH_SLICE_S = 0.2
_CLOSE_TIMEOUT_S = 65.0
"""A little more than `message.timeout.ms`: until then librdkafka answers for every message, stored or not."""
_DISCARD_S = 5.0
_ANY_PARTITION = -1
"""librdkafka chooses."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Published:
    """The topic, partition and offset at which a message was stored.

    ```python
    stored = client.publish("orders", {"item": "tea"}, key="alice")
    print(stored.partition, stored.offset)
    ```
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None


class Publisher:
    """A producer with a thread for its delivery reports. Thread-safe."""

    def __init__(
        self,
        config: dict[str, Any],
        partitioner: Partitioner,
        source: str,
        tracing: "MessagingTracer | None" = None,
        frame: Callable[[Outgoing], Outgoing] = lambda outgoing: outgoing,
    ) -> None:
        """`frame` encodes the payload of a message that has a schema."""
        self._frame = frame
        self._bootstrap: str = config["bootstrap.servers"]
        self.producer: Producer = create_client(Producer, config)
        self._is_transactional = "transactional.id" in config
        self._partitioner = None if partitioner is by_key else partitioner
        self._counts: dict[str, tuple[int, float]] = {}
        self._source = source
        self._tracing = tracing
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._unseen: list[KafkaError] = []

    def send(self, outgoing: Outgoing, *, is_awaited: bool) -> "Future[Published]":
        """Hand a message to librdkafka; the future resolves when the broker answered. Waits while the queue is full.

        The failure of a message that is not awaited is raised by the next `flush`.
        """
        record = self.encode(outgoing)

        def published(stored: Any) -> Published:
            _, timestamp_ms = stored.timestamp()
            return Published(record.topic, stored.partition(), stored.offset(), timestamp_ms)

        return self.send_record(record, published, is_awaited=is_awaited)

    def send_record(
        self,
        record: ProducerRecord,
        result: Callable[[Any], T],
        *,
        is_awaited: bool,
        ids: MessageIds | None = None,
    ) -> "Future[T]":
        """The same for a record; `result` makes the future's result of librdkafka's message. `ids` are those of the
        queue that it is sent to, if it is one."""
        future: Future[T] = Future()
        # From here on it cannot be cancelled: the message is on its way.
        future.set_running_or_notify_cancel()

        def report(error: KafkaError | None, stored: Any) -> None:
            if error is None:
                future.set_result(result(stored))
                return
            if not is_awaited:
                with self._lock:
                    self._unseen.append(error)
            future.set_exception(delivery_error(record.topic, error, self._bootstrap))

        try:
            self.queue(record, report, ids)
        except KafkaException as failure:
            raise delivery_error(record.topic, failure.args[0], self._bootstrap) from None
        return future

    def encode(self, outgoing: Outgoing) -> ProducerRecord:
        outgoing = self._frame(outgoing)
        return encode(outgoing, default_source=self._source, new_id=lambda: str(uuid.uuid4()), now=datetime.now(UTC))

    def queue(
        self,
        record: ProducerRecord,
        on_delivery: Callable[[KafkaError | None, Any], None],
        ids: MessageIds | None = None,
    ) -> None:
        """Queue a record, when there is room. Raises `KafkaException` if librdkafka refuses it."""
        if self._tracing is None or (tracer := self._tracing.active) is None:
            self._queue(record, on_delivery)
            return
        span = tracer.send(record, ids)
        try:
            self._queue(span.record, span.ending(on_delivery))
        except BaseException as error:
            span.end(error)
            raise

    def _queue(self, record: ProducerRecord, on_delivery: Callable[[KafkaError | None, Any], None]) -> None:
        if self._thread is None or self._closing:
            self._serve_reports(record.topic)
        topic, value, key, headers, partition, timestamp_ms = record
        if partition is None and (partition := self._choose(record)) is None:
            partition = _ANY_PARTITION
        more: dict[str, Any] = {}
        if headers:
            more["headers"] = headers
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms
        while True:
            try:
                self.producer.produce(topic, value, key, partition, on_delivery, **more)
                return
            except BufferError:
                self._serve(self.producer.poll, _ROOM_POLL_S)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message sent so far is answered. Raises `DeliveryFailed` if any since the last `flush` was
        not stored, and `Unreachable` if answers are still missing after `timeout_s`."""
        left = self._unanswered_after(timeout_s)
        with self._lock:
            failed, self._unseen = self._unseen, []
        if failed:
            reason = explain(failed[0], self._bootstrap)
            text = f"{len(failed)} messages were not delivered, the first because: {reason}"
            raise refused_delivery(failed[0], text, len(failed))
        if left:
            raise Unreachable(f"{left} messages are not answered yet by {self._bootstrap}")

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Flush, for a limited time, and close the producer. Raises as `flush` does."""
        try:
            if not self._closing:
                self.flush(timeout_s)
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the producer at once. Messages that are not acknowledged yet have failed."""
        if not self._closing:
            self.producer.purge()
            self._unanswered_after(_DISCARD_S)
        self._closing = True
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_DISCARD_S)

    def _unanswered_after(self, timeout_s: float | None) -> int:
        """Wait for answers, and say how many are missing. In slices, so that Ctrl-C is served in between."""
        deadline_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, deadline_s - time.monotonic())
            missing = self._serve(self.producer.flush, min(_FLUSH_SLICE_S, left_s))
            if not missing or not left_s:
                return missing

    def _serve(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Serve events. librdkafka raises a fatal error once, in any such call; it is not raised here, because the
        messages and transactions that it affects report it themselves."""
        try:
            return call(timeout_s)
        except KafkaException as failure:
            log.debug("the producer failed: %s", failure)
            return len(self.producer)

    def _serve_reports(self, topic: str) -> None:
        if self._closing:
            raise ClientError("the client is closed")
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    if not self._is_transactional:
                        warm_up(self.producer, topic)
                    self._thread = threading.Thread(target=self._run, name="headrace-publisher", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            self._serve(self.producer.poll, _POLL_S)

    def _choose(self, record: ProducerRecord) -> int | None:
        """The partition that our own partitioner wants; None leaves it to librdkafka."""
        if self._partitioner is None:
            return None
        partitions = self._partition_count(record.topic)
        chosen = self._partitioner(record.key, partitions)
        if not 0 <= chosen < partitions:
            raise ValueError(f"the partitioner chose partition {chosen} of {record.topic}, which has {partitions}")
        return chosen

    def _partition_count(self, topic: str) -> int:
        """How many partitions a topic has, not older than half a minute. A topic that is not there may be made."""
        count, known_at = self._counts.get(topic, (0, 0.0))
        now = time.monotonic()
        if count and now - known_at < _COUNTS_FRESH_S:
            return count
        deadline = now + _COUNT_TIMEOUT_S
        while True:
            try:
                found = self.producer.list_topics(topic, _COUNT_TIMEOUT_S).topics[topic]
            except KafkaException as failure:
                raise delivery_error(topic, failure.args[0], self._bootstrap) from None
            if found.partitions:
                self._counts[topic] = (len(found.partitions), now)
                return len(found.partitions)
            if time.monotonic() > deadline:
                raise delivery_error(topic, found.error, self._bootstrap)
            time.sleep(_ROOM_POLL_S)
