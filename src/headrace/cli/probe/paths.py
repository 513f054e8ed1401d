"""The ways of a probe's messages: through a topic, and through a queue."""

import logging
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin, cli_config, explain
from headrace.cli.errors import CommandFailed
from headrace.cli.probe.plan import ProbePlan
from headrace.cli.reach import check_reachable
from headrace.client.public import Client, ClientError, Queue
from headrace.observe.end_to_end import EndToEnd

_BODY = struct.Struct(">8sq")
_RETENTION_S = 600
_MAX_PARTITIONS = 100
_PATIENCE_S = 5.0
_SILENT = logging.getLogger("headrace.cli.probe")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class ProbePath(Protocol):
    name: str

    def send(self, number: int) -> None:
        """Send a message without waiting for more than a few seconds."""
        ...

    def figures(self) -> EndToEnd:
        """The figures of the path; to be read while `lock` is held."""
        ...

    @property
    def lock(self) -> threading.Lock: ...

    def close(self) -> None: ...


class _Path:
    """What both paths have: the figures, and messages with the id of this run, so that others' are ignored."""

    def __init__(self, lost_after_s: float) -> None:
        self.lock = threading.Lock()
        self._run_id = os.urandom(8)
        self._figures = EndToEnd(lost_after_s)
        self._closing = threading.Event()

    def figures(self) -> EndToEnd:
        self._figures.expire(time.monotonic())
        return self._figures

    def _begin(self, number: int) -> bytes:
        with self.lock:
            self._figures.send(number, time.monotonic())
        return _BODY.pack(self._run_id, number)

    def _acked(self, number: int) -> None:
        with self.lock:
            self._figures.ack(number, time.monotonic())

    def _failed(self, number: int, error: str) -> None:
        with self.lock:
            self._figures.fail(number, error)

    def _came(self, body: bytes | None) -> None:
        if body is not None and len(body) == _BODY.size:
            run_id, number = _BODY.unpack(body)
            if run_id == self._run_id:
                with self.lock:
                    self._figures.receive(number, time.monotonic())

    def _note(self, error: str) -> None:
        with self.lock:
            self._figures.last_error = error


class TopicPath(_Path):
    """Produces with acks=all to the partitions in turn, and consumes all of them without a group."""

    name = "topic"

    def __init__(self, bootstrap: str, topic: str, lost_after_s: float) -> None:
        super().__init__(lost_after_s)
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = _prepare_topic(bootstrap, topic)
        self._producer = Producer(
            cli_config(
                bootstrap,
                acks="all",
                linger_ms=0,
                delivery_timeout_ms=max(1000, round(lost_after_s * 1000)),
                logger=_SILENT,
            )
        )
        self._consumer = Consumer(
            cli_config(
                bootstrap,
                group_id="headrace-probe",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="latest",
                logger=_SILENT,
            )
        )
        try:
            self._consumer.assign([self._end_of(index) for index in range(self._partitions)])
        except KafkaException as failure:
            self._consumer.close()
            raise CommandFailed(f"{topic}: {explain(failure.args[0], bootstrap)}") from None
        self._threads = [
            threading.Thread(target=self._consume, name="probe-consumer", daemon=True),
            threading.Thread(target=self._poll, name="probe-producer", daemon=True),
        ]
        for each in self._threads:
            each.start()

    def send(self, number: int) -> None:
        body = self._begin(number)

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self._acked(number)
            else:
                self._failed(number, explain(error, self._bootstrap))

        try:
            self._producer.produce(self._topic, body, partition=number % self._partitions, on_delivery=delivered)
        except (KafkaException, BufferError) as failure:
            self._failed(number, str(failure))

    def close(self) -> None:
        self._closing.set()
        for each in self._threads:
            each.join()
        self._producer.flush(0)
        self._consumer.close()

    def _end_of(self, index: int) -> TopicPartition:
        where = TopicPartition(self._topic, index)
        _, end = self._consumer.get_watermark_offsets(where, timeout=REQUEST_TIMEOUT_S)
        return TopicPartition(self._topic, index, end)

    def _consume(self) -> None:
        while not self._closing.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                self._note(explain(error, self._bootstrap))
            else:
                self._came(message.value())

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)


def _prepare_topic(bootstrap: str, topic: str) -> int:
    """Create the topic with a partition for each broker, unless it exists; its number of partitions."""
    broker = Admin(bootstrap)
    cluster = broker.cluster()
    if topic not in cluster.topics:
        partitions = min(_MAX_PARTITIONS, max(1, len(cluster.brokers)))
        settings = {"retention.ms": str(_RETENTION_S * 1000), "segment.ms": str(_RETENTION_S * 1000)}
        new = NewTopic(topic, partitions, replication_factor=-1, config=settings)
        broker.wait(broker.call(broker.admin.create_topics, [new], operation_timeout=REQUEST_TIMEOUT_S)[topic])
        return partitions
    return len(cluster.topics[topic].partitions)


class QueuePath(_Path):
    """Sends to a queue and receives with long polls; every message that comes is deleted."""

    name = "queue"

    def __init__(self, client: Client, queue: str, lost_after_s: float) -> None:
        super().__init__(lost_after_s)
        self._queue: Queue = client.queue(queue)
        try:
            self._queue.create(retention=_RETENTION_S, visibility=30)
        except ClientError as error:
            raise CommandFailed(f"{queue}: {error}") from None
        self._thread = threading.Thread(target=self._receive, name="probe-receiver", daemon=True)
        self._thread.start()

    def send(self, number: int) -> None:
        body = self._begin(number)
        try:
            self._queue.send(body)
        except ClientError as error:
            self._failed(number, str(error))
        else:
            self._acked(number)

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _receive(self) -> None:
        while not self._closing.is_set():
            try:
                for message in self._queue.receive(max=100, wait=0.5):
                    self._came(message.body)
                    message.ack()
            except ClientError as error:
                self._note(str(error))
                self._closing.wait(0.2)


@contextmanager
def opened(plan: ProbePlan) -> Iterator[list[ProbePath]]:
    """The paths, prepared. Raises `CommandFailed` if one cannot be."""
    found: list[ProbePath] = []
    check_reachable(plan.bootstrap)
    logging.getLogger("headrace.client").addHandler(logging.NullHandler())
    client = Client(
        plan.bootstrap, client_id="headrace-probe", http=plan.http, patience=_PATIENCE_S, settings={"logger": _SILENT}
    )
    with client:
        try:
            if "topic" in plan.paths:
                found.append(TopicPath(plan.bootstrap, plan.topic, plan.lost_after_s))
            if "queue" in plan.paths:
                found.append(QueuePath(client, plan.queue, plan.lost_after_s))
            yield found
        finally:
            for each in found:
                each.close()
