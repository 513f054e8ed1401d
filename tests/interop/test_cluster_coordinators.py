"""Groups and transactions over three brokers, with those that coordinate them killed: nothing torn, twice or lost."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster

from . import batches, raw_client

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 90.0
SOURCE, TARGET, COPYING, TRANSACTIONAL_ID = "source", "target", "copying", "worker"
PARTITIONS = 6
RECORDS = 600
GROUP, TRANSACTION = 0, 1
TRANSACTIONAL = 0x10

WORKER = f"""
import sys
from headrace import Client

with Client(sys.argv[1], settings={{"session.timeout.ms": 6000}}) as client:
    with client.consume("{SOURCE}", "{COPYING}", "exactly-once", transactional_id="{TRANSACTIONAL_ID}") as stream:
        for message in stream:
            stream.publish("{TARGET}", message.payload)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "auto.leader.rebalance.enable": False,
        "broker.session.timeout.ms": 6_000,
        "offsets.topic.num.partitions": 6,
        "transaction.state.log.num.partitions": 6,
        "group.initial.rebalance.delay.ms": 0,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), brokers=3, settings=settings) as running:
        with Cluster(running.bootstrap) as tools:
            for topic in (SOURCE, TARGET):
                tools.create_topic(topic, partitions=PARTITIONS)
        yield running


@contextlib.contextmanager
def worker(tmp_path: Path, bootstrap: str) -> Iterator[None]:
    """A process that copies the source to the target exactly once; it must be there to the end."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(script), bootstrap], stdout=log, stderr=log, env=os.environ)
    try:
        yield
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    except BaseException:
        print((tmp_path / "worker.log").read_text(errors="replace")[-5000:])
        raise
    finally:
        process.kill()
        process.wait()


def await_copied(cluster: ClusterProcesses, count: int) -> None:
    """Wait until the group has committed so many records."""
    deadline = time.monotonic() + PATIENCE_S
    reached = -1
    with Cluster(cluster.bootstrap) as tools:
        while reached < count:
            assert time.monotonic() < deadline, f"{reached} of {count} after {PATIENCE_S:.0f} s"
            reached = sum(tools.committed_offsets(COPYING).values())
            time.sleep(0.02)


def coordinator_of(cluster: ClusterProcesses, kind: int, key: str) -> int:
    """The broker that coordinates a group or a transactional id now."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(OSError, raw_client.Closed):
            with raw_client.Connection(cluster.brokers[cluster.running[0]].bootstrap) as connection:
                asked = {"key_type": kind, "coordinator_keys": [key]}
                (answer,) = connection.call(raw_client.FIND_COORDINATOR, 4, asked).coordinators
            if answer.node_id in cluster.running:
                return int(answer.node_id)
        assert time.monotonic() < deadline, f"nobody coordinates {key}"
        time.sleep(0.1)


def copied(cluster: ClusterProcesses) -> Counter[bytes]:
    """What readers of committed records find in the target."""
    seen: Counter[bytes] = Counter()
    with Client(cluster.bootstrap) as client:
        for message in client.replay(TARGET):
            seen[message.payload or b""] += 1
    return seen


MOVING = {
    raw_client.Error.not_coordinator,
    raw_client.Error.coordinator_not_available,
    raw_client.Error.coordinator_load_in_progress,
    raw_client.Error.not_leader_or_follower,
    raw_client.Error.concurrent_transactions,
}
"""What every client answers by asking again: who is responsible has just changed, or is not ready yet."""


class Spoken:
    """A transactional producer that says exactly what a test wants it to, to whichever broker is responsible."""

    def __init__(self, cluster: ClusterProcesses, topic: str, name: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._name = name
        self.leaders: list[int] = []
        body = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = self._settled(
            lambda: self._call(self._coordinator, raw_client.INIT_PRODUCER_ID, 5, body),
            lambda answer: answer.error_code,
        )
        assert answer.error_code == raw_client.Error.none
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def _settled(self, ask: Callable[[], Any], code: Callable[[Any], raw_client.Error]) -> Any:
        """The answer of who is responsible."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._coordinator = coordinator_of(self._cluster, TRANSACTION, self._name)
            with Cluster(self._cluster.bootstrap) as tools:
                self.leaders = [part.leader for part in tools.metadata([self._topic])[self._topic].partitions]
            answer = ask()
            if code(answer) not in MOVING or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    @property
    def elsewhere(self) -> list[int]:
        """The partitions that others lead than the one that coordinates."""
        return [index for index, leader in enumerate(self.leaders) if leader != self._coordinator]

    def produce(self, index: int, value: bytes, version: int, *, epoch: int | None = None, sequence: int = 0) -> Any:
        batch = batches.batch(
            [value],
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        body = {**raw_client.produce_body(self._topic, batch, partition=index), "transactional_id": self._name}
        return self._settled(
            lambda: (
                self._call(self.leaders[index], raw_client.PRODUCE, version, body).responses[0].partition_responses[0]
            ),
            lambda answer: answer.error_code,
        ).error_code

    def commit_offset(self, group: str, offset: int) -> Any:
        place = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
        body = {
            **self._who,
            "group_id": group,
            "generation_id": -1,
            "topics": [{"name": self._topic, "partitions": [{**place, "committed_metadata": ""}]}],
        }
        return self._settled(
            lambda: (
                self._call(coordinator_of(self._cluster, GROUP, group), raw_client.TXN_OFFSET_COMMIT, 5, body)
                .topics[0]
                .partitions[0]
            ),
            lambda answer: answer.error_code,
        ).error_code

    def end(self, *, committed: bool) -> Any:
        answer = self._settled(
            lambda: self._call(self._coordinator, raw_client.END_TXN, 5, {**self._who, "committed": committed}),
            lambda answer: answer.error_code,
        )
        if answer.error_code == raw_client.Error.none:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    @property
    def _who(self) -> dict[str, Any]:
        return {"transactional_id": self._name, "producer_id": self.id, "producer_epoch": self.epoch}

    def _call(self, broker_id: int, key: int, version: int, body: dict[str, Any]) -> Any:
        with raw_client.Connection(self._cluster.brokers[broker_id].bootstrap) as connection:
            return connection.call(key, version, body)


def test_partitions_join_transactions_that_other_brokers_coordinate(cluster: ClusterProcesses) -> None:
    topic, group = "joined", "joins"
    with Cluster(cluster.bootstrap) as tools:
        tools.create_topic(topic, partitions=3)
        cluster.await_in_sync()
        producer = Spoken(cluster, topic, "speaks")
        assert producer.elsewhere
        for index in range(3):
            assert producer.produce(index, b"one", 12) == raw_client.Error.none, "it is added by being written to"
        assert producer.commit_offset(group, 7) == raw_client.Error.none
        first = producer.epoch
        assert producer.end(committed=True) == raw_client.Error.none
        assert producer.epoch == first + 1
        assert tools.committed_offsets(group) == {(topic, 0): 7}
        for index in range(3):
            assert (
                producer.produce(index, b"late", 12, epoch=first, sequence=1) == raw_client.Error.invalid_producer_epoch
            )
        for index in producer.elsewhere:
            assert producer.produce(index, b"never added", 11) == raw_client.Error.transaction_abortable
        for index in range(3):
            assert producer.produce(index, b"two", 12) == raw_client.Error.none
        assert producer.commit_offset(group, 8) == raw_client.Error.none
        assert producer.end(committed=False) == raw_client.Error.none
        assert tools.committed_offsets(group) == {(topic, 0): 7}
    with Client(cluster.bootstrap) as client:
        assert [message.payload for message in client.replay(topic)] == [b"one"] * 3


def test_exactly_once_goes_on_whichever_coordinator_is_killed(cluster: ClusterProcesses, tmp_path: Path) -> None:
    sent = 0
    with worker(tmp_path, cluster.bootstrap), Client(cluster.bootstrap) as client:
        for kind, key in ((TRANSACTION, TRANSACTIONAL_ID), (GROUP, COPYING)):
            for _ in range(RECORDS):
                client.publish_soon(SOURCE, str(sent))
                sent += 1
            client.flush()
            await_copied(cluster, sent - RECORDS + 1)
            victim = coordinator_of(cluster, kind, key)
            cluster.kill(victim)
            await_copied(cluster, sent)
            cluster.start_broker(victim)
    found = copied(cluster)
    assert {value: count for value, count in found.items() if count > 1} == {}
    assert set(found) == {b"%d" % number for number in range(sent)}


def test_what_a_group_committed_outlives_its_coordinator(cluster: ClusterProcesses) -> None:
    group = "keeps"
    offsets = {(SOURCE, partition): 3 + partition for partition in range(PARTITIONS)}
    with Cluster(cluster.bootstrap) as tools:
        tools.commit_offsets(group, offsets)
        victim = coordinator_of(cluster, GROUP, group)
        cluster.kill(victim)
        assert tools.committed_offsets(group) == offsets
        cluster.start_broker(victim)
        assert tools.committed_offsets(group) == offsets
