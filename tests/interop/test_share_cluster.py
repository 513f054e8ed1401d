"""Share groups on three brokers, with those that lead partitions and coordinate the group killed one after the other:
every record is delivered, and none that was accepted comes back."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.testing.cluster import ClusterProcesses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC, GROUP = "jobs", "workers"
RECORDS = 3_000
PATIENCE_S = 240.0
Where = tuple[int, int]
"""Partition and offset."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "broker.session.timeout.ms": 6_000,
        "offsets.topic.num.partitions": 6,
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": 10_000,
        "group.share.delivery.count.limit": 10,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("share-cluster"), brokers=3, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 6, 3)])[TOPIC].result(60)
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(60)
        yield running


def send(bootstrap: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    failed: list[object] = []
    for number in range(first, first + count):
        producer.produce(TOPIC, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


class Worker:
    """Accepts what it gets, and knows of which it is certain that they were accepted."""

    def __init__(self, bootstrap: str) -> None:
        conf = {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
        self.consumer = ShareConsumer(conf)
        self.consumer.subscribe([TOPIC])

    def work(self, seen: dict[Where, int], accepted: set[Where]) -> None:
        mine: list[Where] = []
        try:
            for message in self.consumer.poll(0.3):
                if message.error() is None:
                    where = message.partition(), message.offset()
                    assert where not in accepted, f"{where} was accepted before"
                    seen[where] = int(message.value() or b"")
                    mine.append(where)
                    self.consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            results = self.consumer.commit_sync(30.0) if mine else {}
        except KafkaException as error:
            print(f"a worker goes on after {error}")
            return
        settled = {place.partition for place, error in results.items() if error is None}
        accepted.update(where for where in mine if where[0] in settled)


def test_nothing_is_lost_and_nothing_accepted_comes_back_while_brokers_are_killed(cluster: ClusterProcesses) -> None:
    seen: dict[Where, int] = {}
    accepted: set[Where] = set()
    end = time.monotonic() + PATIENCE_S
    share = RECORDS // 3
    with ExitStack() as stack:
        workers = [Worker(cluster.bootstrap) for _ in range(2)]
        for worker in workers:
            stack.callback(worker.consumer.close)
        for turn, broker_id in enumerate(tuple(cluster.brokers)):
            send(cluster.bootstrap, turn * share, share)
            while len(set(seen.values())) < turn * share + share // 3:
                assert time.monotonic() < end, f"turn {turn}: {len(seen)} came"
                for worker in workers:
                    worker.work(seen, accepted)
            cluster.kill(broker_id)
            while len(set(seen.values())) < (turn + 1) * share:
                assert time.monotonic() < end, f"turn {turn}, with a broker less: {len(set(seen.values()))} came"
                for worker in workers:
                    worker.work(seen, accepted)
            cluster.start_broker(broker_id)
            cluster.await_in_sync()
        assert set(seen.values()) == set(range(RECORDS))
        assert len(accepted) > RECORDS // 2
