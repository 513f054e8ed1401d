"""Producers that offer much more than a broker can take: groups, leaders, memory and acknowledged data survive it."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess
from tests.faults import probes
from tests.faults.catch_up import FETCH_BYTES, CatchUpProcess, make_cold, whole_batches
from tests.faults.flood import FloodPlan, FloodProcess, FloodResult, acked_batches
from tests.interop import batches, raw_client

log = logging.getLogger(__name__)

MIB = 1 << 20
MEMORY_BYTES = 700 * MIB
"""Request memory (288 MiB), what waits in line (72 MiB), buffers that are used again, and the broker itself."""
HEARTBEAT_P99_S = 1.0


class GroupMember:
    """A real consumer in a group; an assignment after the first one means that the group has fallen apart."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.assigned = self.revoked = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "latest",
             "enable.auto.commit": True, "auto.commit.interval.ms": 1000, "fetch.message.max.bytes": 65_536}
        )  # fmt: skip
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, *_: object) -> None:
        self.assigned += 1

    def _on_revoke(self, *_: object) -> None:
        self.revoked += 1

    def poll(self) -> None:
        self._consumer.poll(0)

    @property
    def partitions(self) -> int:
        return len(self._consumer.assignment())

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def group_of(members: int, bootstrap: str, topic: str) -> Iterator[list[GroupMember]]:
    found = [GroupMember(bootstrap, "readers", topic) for _ in range(members)]
    try:
        end = time.monotonic() + 90
        while any(member.partitions != 1 for member in found):
            assert time.monotonic() < end, "the group did not form"
            for member in found:
                member.poll()
            time.sleep(0.05)
        for member in found:
            member.assigned = member.revoked = 0
        yield found
    finally:
        for member in found:
            member.close()


def lost_batches(leaders: Sequence[str], topic: str, acked: Path) -> int:
    """How many acknowledged batches are not where the broker said."""
    missing = {(partition, offset): stamp for partition, offset, stamp in acked_batches(acked)}
    count = sum(1 for _ in acked_batches(acked))
    assert len(missing) == count, "an offset was given twice"
    for partition, address in enumerate(leaders):
        with raw_client.Connection(address) as connection:
            offset, end = 0, raw_client.offset_at(connection, topic, -1, partition=partition).offset
            while offset < end:
                found = raw_client.fetch(
                    connection, topic, offset, partition=partition, partition_max_bytes=FETCH_BYTES
                )
                for batch in whole_batches(memoryview(found.records)):
                    offset = batch.next_offset
                    stamp = missing.get((partition, batch.base_offset))
                    if stamp is not None and stamp in bytes(batch.data[61:90]):
                        del missing[partition, batch.base_offset]
    return len(missing)


def flood(
    plan: FloodPlan, folder: Path, brokers: Sequence[BrokerProcess], bootstrap: str
) -> tuple[FloodResult, list[probes.LatencyProbe], probes.MemoryWatch]:
    """Flood brokers while a group consumes another topic; no member may be lost."""
    memory = probes.MemoryWatch([broker.pid for broker in brokers])
    asking = [probes.heartbeats(broker.bootstrap, f"beats-{number}") for number, broker in enumerate(brokers[:1])]
    asking.append(probes.metadata(brokers[0].bootstrap))
    with group_of(3, bootstrap, "quiet") as members, FloodProcess(plan, folder) as flooding:
        with probes.probing([*asking, memory]):
            while flooding.is_running:
                for member in members:
                    member.poll()
                time.sleep(0.05)
        result = flooding.wait()
        assert [(member.assigned, member.revoked) for member in members] == [(0, 0)] * 3, "the group fell apart"
    return result, asking, memory


def check(result: FloodResult, asking: list[probes.LatencyProbe], memory: probes.MemoryWatch) -> None:
    log.info("%s; %d MiB", result, memory.most_bytes // MIB)
    for probe in asking:
        log.info("%s: %s s", probe.name, [round(probe.percentile_s(each), 4) for each in (50, 99, 100)])
    assert result.errors == {}
    assert result.lost_connections == 0
    assert result.acked == result.sent > 0
    assert result.offered > 5 * result.acked
    for probe in asking:
        assert probe.percentile_s(99) < HEARTBEAT_P99_S, f"{probe.name} took {probe.percentile_s(99):.2f} s"
    assert memory.most_bytes < MEMORY_BYTES, f"{memory.most_bytes / MIB:.0f} MiB were resident"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("producers", "seconds", "value_bytes"),
    [
        (100, 4, 1000),
        pytest.param(500, 300, 1000, marks=pytest.mark.slow),
        pytest.param(500, 60, 100_000, marks=pytest.mark.slow),
    ],
)
def test_a_flood_of_producers(tmp_path: Path, producers: int, seconds: float, value_bytes: int) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        raw_client.create_topic(broker.bootstrap, "flood", 6)
        raw_client.create_topic(broker.bootstrap, "quiet", 3)
        leaders = [broker.bootstrap] * 6
        plan = FloodPlan("flood", leaders, producers, seconds, 200_000 / producers, value_bytes)
        check(*flood(plan, tmp_path, [broker], broker.bootstrap))
        assert lost_batches(leaders, "flood", tmp_path / "flood.acked") == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_flood_of_a_cluster_loses_no_leader(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster:
        brokers = [cluster.brokers[number] for number in (1, 2, 3)]
        for topic, partitions in (("flood", 6), ("quiet", 3)):
            with raw_client.Connection(brokers[0].bootstrap) as connection:
                new = {"name": topic, "num_partitions": partitions, "replication_factor": 3}
                answer = connection.call(raw_client.CREATE_TOPICS, 7, topics=[new], timeout=60_000)
                assert answer.topics[0].error_code is raw_client.Error.none
        cluster.await_in_sync()
        before = leaders_of(brokers[0].bootstrap, "flood")
        plan = FloodPlan("flood", [address for address, _ in before], 500, 120, 400)
        result, asking, memory = flood(plan, tmp_path, brokers, cluster.bootstrap)
        check(result, asking, memory)
        assert leaders_of(brokers[0].bootstrap, "flood") == before, "a leader was lost"
        assert lost_batches(plan.leaders, "flood", tmp_path / "flood.acked") == 0


def leaders_of(bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """The address of each partition's leader, and its leader epoch."""
    with raw_client.Connection(bootstrap) as connection:
        answer = connection.call(raw_client.METADATA, 12, topics=[{"name": topic}])
    addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    partitions = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    return [(addresses[each.leader_id], each.leader_epoch) for each in partitions]


@pytest.mark.slow
def test_a_consumer_of_old_data_does_not_delay_the_tail(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        raw_client.create_topic(broker.bootstrap, "old", 1, {"segment.bytes": str(64 * MIB), "flush.policy": "os"})
        raw_client.create_topic(broker.bootstrap, "tail")
        batch = batches.batch([b"x" * 1000] * 900)
        with raw_client.Connection(broker.bootstrap) as connection:
            for _ in range(1000):
                assert raw_client.produce(connection, "old", batch, acks=1).error_code is raw_client.Error.none
        make_cold(broker.data_dir / "old-0")
        probe = probes.tail(broker.bootstrap, "tail")
        with CatchUpProcess(broker.bootstrap, "old", 1) as reader, probes.probing([probe]):
            caught_up = reader.wait()
        assert caught_up.bytes >= 1000 * len(batch)
        # The bench compares it with the tail alone; this machine may have other work.
        assert probe.percentile_s(99) < 1.0, f"the tail's p99 was {probe.percentile_s(99):.2f} s"
