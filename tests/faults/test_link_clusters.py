"""Two clusters of three brokers and a link between them: brokers are killed on both sides, then the source is lost."""

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import ClusterProcesses
from tests.waiting import until

TOPIC, GROUP = "orders", "billing"
PARTITIONS, KILLS = 6, 6
FAST = {"link.refresh.interval.ms": 200, "broker.session.timeout.ms": 3000, "min.insync.replicas": 2}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[ClusterProcesses, ClusterProcesses]]:
    with (
        ClusterProcesses(tmp_path / "eu", settings=FAST) as source,
        ClusterProcesses(tmp_path / "us", settings=FAST) as target,
    ):
        yield source, target


def call(cluster: ClusterProcesses, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{cluster.http_url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=90) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Load:
    """A producer with acks=all that remembers what was acknowledged, by partition and offset."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self._number = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})

    def run(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self._number += 1
            self._producer.produce(TOPIC, b"%d" % self._number, on_delivery=self._delivered)
            self._producer.poll(0.001)

    def finish(self) -> None:
        assert self._producer.flush(90) == 0
        assert self.failed == []

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition() or 0, message.offset() or 0] = message.value() or b""


def everything(cluster: ClusterProcesses, count: int) -> dict[tuple[int, int], bytes]:
    """The first `count` messages, by partition and offset."""
    found: dict[tuple[int, int], bytes] = {}
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "all", "enable.auto.commit": False}
    with closing(Consumer({**settings, "auto.offset.reset": "earliest"})) as consumer:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        ends_at = time.monotonic() + 90
        while len(found) < count and time.monotonic() < ends_at:
            for message in consumer.consume(1000, timeout=1):
                assert message.error() is None, message.error()
                found[message.partition() or 0, message.offset() or 0] = message.value() or b""
    return found


def lag(cluster: ClusterProcesses) -> int | None:
    topics = call(cluster, "GET", "/links/eu")["topics"]
    return topics[0]["lag_messages"] if topics else None


def committed(cluster: ClusterProcesses) -> list[int]:
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})) as consumer:
        wanted = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(wanted, timeout=30)]


@pytest.mark.slow
def test_brokers_of_both_clusters_are_killed_and_the_source_is_lost(
    clusters: tuple[ClusterProcesses, ClusterProcesses],
) -> None:
    source, target = clusters
    chance = random.Random(int(os.environ.get("LINK_SEED", "21")))
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    call(target, "POST", "/links", {"name": "eu", "bootstrap": source.bootstrap.split(","), "topics": [TOPIC]})
    load = Load(source.bootstrap)
    for _ in range(KILLS):
        load.run(1.0)
        cluster = chance.choice((source, target))
        broker = cluster.brokers[chance.choice(cluster.running)]
        broker.kill()
        load.run(2.0)
        broker.start()
        cluster.await_ready(60)
    load.finish()
    half = [TopicPartition(TOPIC, index, 10 + index) for index in range(PARTITIONS)]
    with closing(Consumer({"bootstrap.servers": source.bootstrap, "group.id": GROUP})) as consumer:
        consumer.commit(offsets=half, asynchronous=False)
    until(lambda: lag(target) == 0)
    until(lambda: committed(target) == [each.offset for each in half])

    for broker in source.brokers.values():
        broker.kill()
    began = time.monotonic()
    result = call(target, "POST", f"/mirrors/{TOPIC}/failover", {})
    assert result["missing_messages"] == 0
    here = Load(target.bootstrap)
    here.run(1.0)
    here.finish()
    print(f"{len(load.acknowledged)} mirrored; writable {time.monotonic() - began - 1:.1f} s after the source was lost")
    assert here.acknowledged.keys().isdisjoint(load.acknowledged.keys())
    expected = load.acknowledged | here.acknowledged
    assert everything(target, len(expected)) == expected
    assert committed(target) == [each.offset for each in half]
