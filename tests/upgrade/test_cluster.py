"""A cluster that an earlier version has written: etcd is restored from its snapshot, and everything is there."""

from pathlib import Path
from typing import Any

import pytest

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.testing.replicas import find_divergence
from headrace.wire import Cluster
from tests.upgrade.clusters import opened_cluster
from tests.upgrade.inventory import differences, take
from tests.upgrade.release import unpack, versions

pytestmark = [
    pytest.mark.xdist_group("upgrade-cluster"),
    pytest.mark.skipif(not is_installed(), reason="needs etcd"),
]


@pytest.mark.parametrize("version", versions())
def test_a_cluster_goes_on_with_everything_it_had(version: str, tmp_path: Path) -> None:
    content = unpack(version, "cluster", tmp_path)["content"]
    with opened_cluster(tmp_path) as cluster:
        assert differences(content, take(cluster.bootstrap, cluster.http_url)) == []
        _restart_all(cluster)
        assert differences(content, take(cluster.bootstrap, cluster.http_url)) == []
        _write_on(cluster, content)
        ends = _ends(cluster, content)
    copies = {str(broker_id): broker.data_dir for broker_id, broker in cluster.brokers.items()}
    assert find_divergence(copies, ends) == []


def _restart_all(cluster: ClusterProcesses) -> None:
    for broker_id in cluster.brokers:
        cluster.kill(broker_id)
    for broker in cluster.brokers.values():
        broker.launch()
    for broker in cluster.brokers.values():
        broker.await_ready()
    cluster.await_ready()
    cluster.await_in_sync()


def _write_on(cluster: ClusterProcesses, content: dict[str, Any]) -> None:
    """What comes now goes behind what is there, and no producer id comes again."""
    given = [each["producer id"] for each in content["transactions"].values()]
    with Client(cluster.bootstrap, http=cluster.http_url) as client:
        client.publish("codecs", b"later", partition=3)
        client.flush()
        got = client.queue("urgent").receive(max=100, wait=10)
        assert [each.priority for each in got] == sorted((each.priority for each in got), reverse=True)
        assert len(got) == len(content["queues"]["urgent"]["messages"])
    with Cluster(cluster.bootstrap) as wire:
        assert wire.init_producer_id().producer_id > max(given)
        (end,) = wire.list_offsets([("codecs", 3)]).values()
        assert end.offset == content["topics"]["codecs"]["partitions"][3]["end"] + 1
    cluster.await_in_sync()


def _ends(cluster: ClusterProcesses, content: dict[str, Any]) -> dict[str, int]:
    """The end of each partition, by the name of its folder."""
    with Cluster(cluster.bootstrap) as wire:
        partitions = [
            (name, number) for name, topic in content["topics"].items() for number in range(len(topic["partitions"]))
        ]
        return {f"{name}-{number}": end.offset for (name, number), end in wire.list_offsets(partitions).items()}
