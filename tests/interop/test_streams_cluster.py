"""A streams group (KIP-1071) on three brokers, of which the one that coordinates it is killed: its members go on."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster

from . import raw_client, subject
from .raw_client import Connection, Error
from .streams_members import StreamsMember, statuses, word_count

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace"),
]

PATIENCE_S = 90.0
SOURCE, GROUP = "lines", "word-count"
GROUP_KEY = 0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "broker.session.timeout.ms": 6_000,
        "offsets.topic.num.partitions": 6,
        "group.streams.initial.rebalance.delay.ms": 0,
        "group.streams.num.standby.replicas": 1,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("streams-cluster"), brokers=3, settings=settings) as running:
        with Cluster(running.bootstrap) as tools:
            tools.create_topic(SOURCE, partitions=4)
        yield running


def coordinator(cluster: ClusterProcesses, *, but: int = 0) -> int:
    """The broker that coordinates the group, once it has loaded it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        for broker_id, broker in cluster.brokers.items():
            if broker_id == but:
                continue
            with suppress(OSError, raw_client.Closed), Connection(broker.bootstrap) as connection:
                asked = {"key_type": GROUP_KEY, "coordinator_keys": [GROUP]}
                found = connection.call(raw_client.FIND_COORDINATOR, 4, asked).coordinators[0]
                if found.error_code is not Error.none or found.node_id != broker_id:
                    continue
                if connection.call(raw_client.OFFSET_FETCH, 7, group_id=GROUP, topics=None).error_code is Error.none:
                    return broker_id
        assert time.monotonic() < end
        time.sleep(0.1)


def test_members_go_on_with_another_coordinator(cluster: ClusterProcesses) -> None:
    first = coordinator(cluster)
    with Connection(cluster.brokers[first].bootstrap) as connection:
        one, two = (StreamsMember(connection, GROUP, process) for process in ("p1", "p2"))
        end = time.monotonic() + PATIENCE_S
        told = one.join(word_count(GROUP, SOURCE))
        while statuses(told) or not one.active:
            assert told.error_code is Error.none, told
            assert time.monotonic() < end, told
            time.sleep(0.1)
            told = one.beat()
        two.join(word_count(GROUP, SOURCE))
        one.settle(two)
        names = [f"{GROUP}-words-repartition", f"{GROUP}-counted-changelog"]
        topics = connection.call(raw_client.METADATA, 12, topics=[{"name": name} for name in names]).topics
        assert [[len(part.replica_nodes) for part in topic.partitions] for topic in topics] == [[3] * 4] * 2
    before = [(member.epoch, member.active, member.standby) for member in (one, two)]
    assert sorted(sum(len(some) for some in active.values()) for _, active, _ in before) == [4, 4]
    cluster.kill(first)
    second = coordinator(cluster, but=first)
    with Connection(cluster.brokers[second].bootstrap) as connection:
        one.connection = two.connection = connection
        for member in (one, two):
            told = member.beat()
            assert (told.error_code, told.active_tasks) == (Error.none, None)
        assert [(member.epoch, member.active, member.standby) for member in (one, two)] == before
        three = StreamsMember(connection, GROUP, "p3")
        assert three.join(word_count(GROUP, SOURCE)).error_code is Error.none
        one.settle(two, three)
        sizes = [sum(len(some) for some in member.active.values()) for member in (one, two, three)]
        assert sorted(sizes) == [2, 3, 3]
