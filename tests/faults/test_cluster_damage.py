"""A bit that changes on the disk of one broker of three: nobody reads it, and the replica gets what was there back."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_installed(), reason="etcd is not installed"),
]

COUNT = 3_000
PATIENCE_S = 120.0


def segments(cluster: ClusterProcesses, broker_id: int) -> list[Path]:
    return sorted(cluster.brokers[broker_id].data_dir.glob("t-0/*.log"))


def flip_a_bit(path: Path) -> None:
    at = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 8]))


def read_everything(bootstrap: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < COUNT and time.monotonic() < deadline_s:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_a_changed_bit_is_found_and_what_was_there_is_fetched_anew(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 3, config={"segment.bytes": "60000"})])["t"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        sent = [b"%d " % number + b"x" * 100 for number in range(COUNT)]
        for number, value in enumerate(sent):
            producer.produce("t", value)
            if number % 50 == 0:
                assert producer.flush(PATIENCE_S) == 0
        assert producer.flush(PATIENCE_S) == 0
        cluster.await_in_sync(PATIENCE_S)

        # In a closed segment of the leader, which finds it when it is read.
        leader = admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions[0].leader
        flip_a_bit(segments(cluster, leader)[1])
        assert read_everything(cluster.bootstrap) == sent
        cluster.await_in_sync(PATIENCE_S)

        # In the last segment of a follower that was killed, which finds it when it starts.
        leader = admin.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions[0].leader
        follower = next(broker_id for broker_id in cluster.brokers if broker_id != leader)
        cluster.kill(follower)
        flip_a_bit(segments(cluster, follower)[-1])
        cluster.start_broker(follower)
        cluster.await_in_sync(PATIENCE_S)
        logs = {b"".join(path.read_bytes() for path in segments(cluster, broker_id)) for broker_id in cluster.brokers}
        assert len(logs) == 1
