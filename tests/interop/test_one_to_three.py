"""A broker that was alone becomes the first of three and keeps what it has, as `docs/operations.md` says."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import START_TIMEOUT_S, ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster

from . import raw_client

pytestmark = pytest.mark.skipif(not is_installed(), reason="etcd is not installed")

COUNT = 500
WAIT_S = 60


def produce(bootstrap: str, first: int) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + COUNT):
        producer.produce(
            "kept", str(number), partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def consume(bootstrap: str, group: str, count: int) -> list[int]:
    """The next `count` of a group, committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe(["kept"])
        got: list[int] = []
        give_up_at = time.monotonic() + WAIT_S
        while len(got) < count and time.monotonic() < give_up_at:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                got.append(int(message.value() or b""))
        if got:
            consumer.commit(offsets=[TopicPartition("kept", 0, got[-1] + 1)], asynchronous=False)
        return got


@pytest.mark.timeout(400)
def test_everything_is_there_afterwards(tmp_path: Path) -> None:
    quick = {"group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path / "broker-0", settings=quick).start(START_TIMEOUT_S) as alone:
        topic_id = raw_client.create_topic(alone.bootstrap, "kept", 2)
        produce(alone.bootstrap, 0)
        assert consume(alone.bootstrap, "g", 100) == list(range(100))
        assert alone.terminate() == 0
    with ClusterProcesses(tmp_path, brokers=1, first_id=0, settings=quick) as cluster:
        assert consume(cluster.bootstrap, "g", 100) == list(range(100, 200))
        for broker_id in (1, 2):
            cluster.add_broker(broker_id)
        produce(cluster.bootstrap, COUNT)
        assert consume(cluster.bootstrap, "g", 2 * COUNT - 200) == list(range(200, 2 * COUNT))
        with raw_client.Connection(cluster.brokers[0].bootstrap) as connection:
            assert raw_client.wait_topic(connection, "kept", 2) == topic_id
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("new", 3)])["new"].result(WAIT_S)
        cluster.await_in_sync()
        with Cluster(cluster.bootstrap) as client:
            assert {len(part.replicas) for part in client.metadata()["new"].partitions} == {3}
        refused = BrokerProcess(tmp_path / "broker-0", settings=quick)
        cluster.stop(0)
        with pytest.raises(RuntimeError, match=r"is in etcd: set etcd\.endpoints"):
            refused.start(START_TIMEOUT_S)
        refused.close()
