"""Encrypted topics when brokers are killed, and when a key is destroyed in a cluster."""

import os
import random
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster
from tests.faults.history import Writer, check, read_partition
from tests.interop import raw_client
from tests.interop.subject import Subject

KEY = b64encode(bytes(range(3, 35))).decode()
SECRET = b"planted-plaintext"
_ENOUGH_S = 60.0


def key_file(folder: Path, *keys: str) -> str:
    path = folder / "master.key"
    path.touch(mode=0o600)
    path.write_text("\n".join(keys))
    return str(path)


def files_with(folder: Path, text: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + _ENOUGH_S
    while not condition():
        assert time.monotonic() < give_up_at_s
        time.sleep(0.02)


def test_kill_while_encrypted_records_are_written(own_broker: Callable[..., Subject], tmp_path: Path) -> None:
    broker = own_broker(encryption_master_key_file=key_file(tmp_path, KEY))
    rng = random.Random(1)
    raw_client.create_topic(
        broker.bootstrap, "orders", 1, {"encryption.at.rest": "true", "segment.bytes": "65536", "flush.policy": "os"}
    )
    writer = Writer(broker, "orders", idempotent=True)
    writer.start()
    for _ in range(2):
        goal = len(writer.history.acked) + rng.randint(30, 120)
        wait_until(lambda goal=goal: writer.error is not None or len(writer.history.acked) >= goal)  # type: ignore[misc]
        broker.kill()
        broker.start()
    history = writer.finish()
    check(history, read_partition(broker.bootstrap, "orders"))
    assert files_with(broker.data_dir, b"." * 60) == [], "the values are padded with dots"


def fetched(broker: str, topic: str) -> raw_client.Error:
    """The error code of a fetch of partition 0 from one broker."""
    with raw_client.Connection(broker) as connection:
        code: raw_client.Error = raw_client.fetch(connection, topic).error_code
        return code


@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_fails_over_and_a_shredded_topic_is_unreadable_on_every_broker(tmp_path: Path) -> None:
    settings = {
        "encryption.master.key.file": key_file(tmp_path, KEY),
        "default.replication.factor": 3,
        "broker.session.timeout.ms": 2000,
    }
    with ClusterProcesses(tmp_path / "cluster", settings=settings) as cluster:
        with raw_client.Connection(cluster.brokers[1].bootstrap) as connection:
            configs = [{"name": "encryption.at.rest", "value": "true"}]
            topic = {"name": "orders", "num_partitions": 1, "replication_factor": 3, "configs": configs}
            created = connection.call(raw_client.CREATE_TOPICS, 7, topics=[topic], timeout=60_000)
            assert created.topics[0].error_code == raw_client.Error.none, created
        send(cluster, range(200))
        with Cluster(cluster.bootstrap) as asked:
            leader = asked.metadata(["orders"])["orders"].partitions[0].leader
        cluster.kill(leader)
        send(cluster, range(200, 300))
        survivor = next(id_ for id_ in cluster.running)
        assert sorted(map(int, values_of(cluster, survivor))) == list(range(300))
        cluster.start_broker(leader)
        cluster.await_in_sync()
        assert sorted(map(int, values_of(cluster, leader))) == list(range(300)), "it has copied what it had missed"
        logs = [sorted((tmp_path / "cluster" / f"broker-{id_}" / "orders-0").glob("*.log")) for id_ in (1, 2, 3)]
        contents = {b"".join(path.read_bytes() for path in paths) for paths in logs}
        assert len(contents) == 1, "the replicas are the same, byte for byte"

        done = subprocess.run(
            [sys.executable, "-m", "headrace", "topic", "shred", "orders", "--yes", "-b", cluster.bootstrap],
            capture_output=True, env=os.environ, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for id_ in (1, 2, 3):
            wait_until(lambda id_=id_: _is_unreadable(cluster, id_))  # type: ignore[misc]
        cluster.kill(leader)
        cluster.start_broker(leader)
        wait_until(lambda: _is_unreadable(cluster, leader))
    assert files_with(tmp_path / "cluster", SECRET) == []


def send(cluster: ClusterProcesses, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in numbers:
        producer.produce("orders", SECRET + b" %d" % number, partition=0)
    assert producer.flush(_ENOUGH_S) == 0


def values_of(cluster: ClusterProcesses, broker_id: int) -> list[str]:
    """The numbers that were sent, as the files and the data key of one broker have them."""
    broker = cluster.brokers[broker_id]
    done = subprocess.run(
        [
            sys.executable, "-m", "headrace", "log", "dump", str(broker.data_dir), "--topic", "orders",
            "--config", str(_config_of(cluster)),
        ],
        capture_output=True, text=True, env=os.environ, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.rpartition(SECRET.decode() + " ")[2].strip() for line in done.stdout.splitlines()]


def _config_of(cluster: ClusterProcesses) -> Path:
    path = cluster.folder / "headrace.toml"
    key = cluster.folder.parent / "master.key"
    path.write_text(f'[etcd]\nendpoints = "{cluster.etcd.endpoint}"\n\n[encryption.master.key]\nfile = "{key}"\n')
    return path


def _is_unreadable(cluster: ClusterProcesses, broker_id: int) -> bool:
    """Whether one broker refuses to serve the topic, as leader or as follower, for lack of a key."""
    code = fetched(cluster.brokers[broker_id].bootstrap, "orders")
    return code == raw_client.Error.policy_violation
