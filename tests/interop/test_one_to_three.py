"""A broker that was alone becomes the first of three and keeps what it has, as `docs/operations.md` says."""

import time
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Client
from headrace.model.queue_wire import Counts
from headrace.testing.cluster import START_TIMEOUT_S, ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.waiting import until

from . import raw_client
from .registry_client import ORDER, RegistryClient
from .share_members import ACCEPT, RELEASE, Member, acquired, configure, part, until_acquired

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


INTERNAL = {"__consumer_offsets", "__queue_state", "_schemas"}


@pytest.mark.timeout(400)
def test_the_first_broker_may_be_lost_once_two_others_have_joined(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker-0").start(START_TIMEOUT_S) as alone:
        topic_id = share_and_register(alone)
        with Client(alone.bootstrap) as client:
            queue = client.queue("work").create(visibility=3_600)
            queue.send_many(map(str, range(10)))
            for message in queue.receive(max=4, wait=WAIT_S):
                message.ack().result(WAIT_S)
            in_flight = [message.text for message in queue.receive(max=3, wait=WAIT_S)]
        assert alone.terminate() == 0
    with ClusterProcesses(tmp_path, brokers=1, first_id=0) as cluster:
        for broker_id in (1, 2):
            cluster.add_broker(broker_id)
        with Cluster(cluster.bootstrap) as admin:
            assert not admin.reassign({("kept", 0): (0, 1, 2), ("work", 0): (0, 1, 2)})

            def short() -> str:
                topics = admin.metadata().values()
                assert {topic.name for topic in topics} == {"kept", "work"} | INTERNAL
                return ", ".join(
                    f"{topic.name}-{part.partition}: {part.isr}"
                    for topic in topics
                    for part in topic.partitions
                    if set(part.isr) != {0, 1, 2}
                )

            cluster.wait_until(short, "every partition has three replicas in sync", WAIT_S)
        cluster.kill(0)
        with Cluster(cluster.bootstrap) as admin:
            leader = until(lambda: max(0, admin.metadata()["kept"].partitions[0].leader))
        with closing(Member(cluster.brokers[leader].bootstrap, "workers", topic_id)) as member:
            assert acquired(until_acquired(member))[0][0] == 7
        with Client(cluster.bootstrap) as client:
            queue = client.queue("work")
            available = [message.text for message in queue.receive(max=10, wait=WAIT_S)]
            assert sorted(int(text) for text in available + in_flight) == list(range(4, 10))
            assert len(in_flight) == 3
            assert queue.counts() == Counts(0, 6, 0)
        registry = RegistryClient(f"{cluster.http_url}/registry")
        assert registry.call("GET", "/subjects/kept-value/versions") == [1]


def share_and_register(broker: BrokerProcess) -> UUID:
    """Accept seven records of a new topic for the share group `workers`, and register a schema; the topic's id."""
    topic_id = raw_client.create_topic(broker.bootstrap, "kept")
    produce(broker.bootstrap, 0)
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.until_coordinated(connection, name="workers")
        configure(connection, "workers", "share.auto.offset.reset", "earliest")
    with closing(Member(broker.bootstrap, "workers", topic_id)) as member:
        member.beat(0, ["kept"])
        last = max(batch[1] for batch in acquired(until_acquired(member)))
        answer = member.acknowledge((0, 6, ACCEPT), (7, last, RELEASE))
        assert part(answer).error_code is raw_client.Error.none
    RegistryClient(f"{broker.http_url}/registry").register("kept-value", ORDER)
    return topic_id
