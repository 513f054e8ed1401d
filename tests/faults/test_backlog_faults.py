"""Backlogs that drop their oldest messages, on a broker that is killed with kill -9 while it does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.testing.process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.slow

BOUND = 20
ROUNDS = 3
PER_ROUND = 60


def _send(broker: BrokerProcess, name: str, first: int) -> int:
    """Send numbers without waiting, and kill the broker while some are acknowledged and others are not."""
    acked: list[int] = []
    # Without retries a number is stored once or not at all.
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "retries": 0, "message.timeout.ms": 5000}
    )

    def delivered(number: int) -> Callable[[object, object], None]:
        return lambda error, _: acked.append(number) if error is None else None

    for number in range(first, first + PER_ROUND):
        producer.produce(name, str(number).encode(), on_delivery=delivered(number))
        if number == first + PER_ROUND // 2:
            until(lambda: producer.poll(0.01) is not None and acked, timeout_s=30)
    broker.kill()
    producer.purge()
    producer.flush(30)
    return max(acked)


def test_a_queue_drops_the_oldest_for_good_whenever_its_broker_is_killed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        lowest, acked = -1, -1
        for number in range(ROUNDS):
            with Client(broker.bootstrap, http=broker.http_url) as client:
                queue = client.queue("jobs").create(max_backlog=BOUND, max_backlog_policy="drop-oldest")
                left = [int(each.text) for each in queue.peek(max=1000)]
                assert left == sorted(left)
                assert not left or left[0] >= lowest, "a message that was dropped has come back"
                if number:
                    assert len(left) == BOUND, "no more are dropped than there must be"
                    assert left[-1] >= acked, "an acknowledged message is lost"
                    lowest = left[0]
            acked = _send(broker, "jobs", number * PER_ROUND)
            broker.start()


def _size(reader: Consumer, place: TopicPartition) -> int:
    low, high = reader.get_watermark_offsets(place, timeout=60)
    return int(high - low)


@pytest.mark.skipif(not is_installed(), reason="needs etcd")
def test_a_topic_drops_the_oldest_whichever_broker_leads(tmp_path: Path) -> None:
    """The leader is killed while records are sent: its successor drops on, and no record of the newest is lost."""
    with ClusterProcesses(tmp_path / "cluster", brokers=3) as cluster:
        settings = {"max.backlog.messages": str(BOUND), "max.backlog.policy": "drop-oldest", "min.insync.replicas": "2"}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("events", 1, 3, config=settings)])["events"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.auto.commit": False})
        place, sent, lowest = TopicPartition("events", 0), 0, 0
        for _ in range(ROUNDS):
            for _ in range(PER_ROUND):
                producer.produce("events", str(sent).encode())
                sent += 1
                producer.poll(0.005)
            leader = admin.list_topics("events", timeout=60).topics["events"].partitions[0].leader
            cluster.kill(leader)
            assert producer.flush(120) == 0
            cluster.start_broker(leader)
            cluster.await_in_sync()

            until(lambda: _size(reader, place) == BOUND)
            low, _ = reader.get_watermark_offsets(place, timeout=60)
            assert low >= lowest, "records that were dropped have come back"
            lowest = low
            reader.assign([TopicPartition("events", 0, low)])
            values = [int(each.value() or b"-1") for each in reader.consume(BOUND, 60)]
            assert values == list(range(sent - BOUND, sent))
        reader.close()
