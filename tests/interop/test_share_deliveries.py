"""The delivery count of a share group's records rises with every delivery, whatever ends the one before it.

Many members on three brokers come, fetch and go: some accept, some release, some end their session in order, some lose
their connection, and the brokers that lead the partitions are stopped and killed meanwhile.
"""

import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.testing.cluster import ClusterProcesses

from . import raw_client
from .raw_client import Connection, Error

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC, GROUP = "jobs", "visitors"
PARTITIONS = 3
RECORDS = 400
"""Sent before each phase, and delivered at least once in it."""
VISITORS = 4
PATIENCE_S = 90.0
ACCEPT, RELEASE = 1, 2
Where = tuple[int, int]
"""Partition and offset."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "broker.session.timeout.ms": 6_000,
        "offsets.topic.num.partitions": 3,
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": 3_000,
        "group.share.delivery.count.limit": 10,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("share-deliveries"), brokers=3, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(60)
        yield running


def send(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


class Deliveries:
    """What all members were given, in any order."""

    def __init__(self) -> None:
        self.counts: dict[Where, list[int]] = defaultdict(list)
        self._lock = threading.Lock()

    def add(self, partition: int, acquired: Any) -> None:
        with self._lock:
            for span in acquired:
                for offset in range(span.first_offset, span.last_offset + 1):
                    self.counts[partition, offset].append(span.delivery_count)

    def repeated(self) -> dict[Where, list[int]]:
        """The records of which two deliveries had the same count."""
        with self._lock:
            return {where: list(told) for where, told in self.counts.items() if len(set(told)) < len(told)}


class Visitors:
    """Threads in which one short-lived member follows the other."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self.deliveries = Deliveries()
        self._threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(VISITORS)]

    def __enter__(self) -> "Visitors":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self._threads)

    def until_delivered(self, records: int) -> None:
        """Wait until so many records were delivered at least once."""
        end = time.monotonic() + PATIENCE_S
        while len(self.deliveries.counts) < records:
            assert not self._failures, self._failures
            assert time.monotonic() < end, f"{len(self.deliveries.counts)} of {records} records were delivered"
            time.sleep(0.05)

    def _run(self, seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not self._is_over.is_set():
                # A broker that is being killed or stopped refuses, closes, or says who leads instead.
                with suppress(OSError, raw_client.Closed):
                    self._visit(chance)
        except BaseException as error:
            self._failures.append(error)
            raise

    def _visit(self, chance: random.Random) -> None:
        broker = self._cluster.brokers[chance.choice(self._cluster.running)]
        with Connection(broker.bootstrap, timeout_s=20.0) as known:
            image = known.call(raw_client.METADATA, 12, topics=[{"topic_id": None, "name": TOPIC}])
        topic = image.topics[0]
        index = chance.randrange(PARTITIONS)
        leader = next((part.leader_id for part in topic.partitions if part.partition_index == index), -1)
        address = {node.node_id: f"{node.host}:{node.port}" for node in image.brokers}.get(leader)
        if topic.error_code is not Error.none or address is None:
            self._is_over.wait(0.1)
            return
        with Connection(address, timeout_s=20.0) as connection:
            Visit(connection, topic.topic_id, index, self.deliveries, chance).live()


class Visit:
    """The life of one member."""

    def __init__(
        self,
        connection: Connection,
        topic_id: uuid.UUID,
        partition: int,
        deliveries: Deliveries,
        chance: random.Random,
    ) -> None:
        self._connection = connection
        self._topic_id = topic_id
        self._partition = partition
        self._deliveries = deliveries
        self._chance = chance
        self._member_id = str(uuid.uuid4())

    def live(self) -> None:
        chance = self._chance
        for epoch in range(chance.randint(1, 3)):
            told = self._fetch(epoch)
            if told is None:
                return
            ending = chance.random()
            if told and ending < 0.5:
                self._acknowledge(epoch + 1, told, ACCEPT)
                return
            if told and ending < 0.6:
                self._acknowledge(epoch + 1, told, RELEASE)
                return
        if chance.random() < 0.5:
            self._acknowledge(-1, [], ACCEPT)
        else:
            self._connection.reset()

    def _body(self, epoch: int, told: Any, kind: int) -> dict[str, Any]:
        batches = [
            {"first_offset": span.first_offset, "last_offset": span.last_offset, "acknowledge_types": [kind]}
            for span in told
        ]
        partition = {"partition_index": self._partition, "acknowledgement_batches": batches}
        return {
            "group_id": GROUP,
            "member_id": self._member_id,
            "share_session_epoch": epoch,
            "topics": [{"topic_id": self._topic_id, "partitions": [partition]}],
        }

    def _fetch(self, epoch: int) -> Any:
        """What the member was given; None if the broker cannot serve it now."""
        limits = {"max_wait": 200, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": self._chance.randint(1, 20)}
        answer = self._connection.call(
            raw_client.SHARE_FETCH, 1, self._body(epoch, [], ACCEPT) | limits | {"batch_size": 20}
        )
        if answer.error_code is not Error.none:
            return None
        parts = [part for topic in answer.responses for part in topic.partitions]
        told = [span for part in parts for span in part.acquired_records]
        self._deliveries.add(self._partition, told)
        return None if any(part.error_code is not Error.none for part in parts) else told

    def _acknowledge(self, epoch: int, told: Any, kind: int) -> None:
        self._connection.call(raw_client.SHARE_ACKNOWLEDGE, 1, self._body(epoch, told, kind))


def test_no_two_deliveries_of_a_record_have_the_same_count(cluster: ClusterProcesses) -> None:
    with Visitors(cluster) as visitors:
        sent = 0
        ends: list[Callable[[int], object]] = [cluster.kill, cluster.stop, cluster.kill]
        for broker_id, end in zip(tuple(cluster.brokers), ends, strict=True):
            send(cluster.bootstrap)
            visitors.until_delivered(sent + RECORDS // 4)
            end(broker_id)
            sent += RECORDS
            visitors.until_delivered(sent)
            cluster.start_broker(broker_id)
            assert not visitors.deliveries.repeated()
    repeated = visitors.deliveries.repeated()
    assert not repeated, f"{len(repeated)} of {len(visitors.deliveries.counts)} records"
    assert any(len(told) > 1 for told in visitors.deliveries.counts.values())
