"""The audit log of a cluster: replicated like other internal topics, and written by brokers that lead none of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.testing import etcd
from headrace.testing.cluster import ClusterProcesses
from headrace.wire import Cluster
from tests.interop import raw_client
from tests.waiting import until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not etcd.is_installed(), reason="there is no etcd"),
]


def create(bootstrap: str, name: str) -> None:
    """By the broker at this address; an admin client would ask the controller."""
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
    with raw_client.Connection(bootstrap) as connection:
        answer = connection.call(raw_client.CREATE_TOPICS, 7, topics=[wanted], timeout=60_000)
    assert answer.topics[0].error_code is raw_client.Error.none


def sources(bootstrap: str) -> dict[str, str]:
    """The broker that recorded the creation of each topic."""
    with Cluster(bootstrap) as cluster:
        if "__audit" not in cluster.metadata():
            return {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditors", "enable.partition.eof": True})
    found: list[dict[str, Any]] = []
    try:
        consumer.assign([TopicPartition("__audit", 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(json.loads(message.value() or b""))
    finally:
        consumer.close()
    return {each["subject"]: each["source"].rpartition("/")[2] for each in found if "subject" in each}


def test_a_broker_that_leads_no_partition_sends_its_events_to_one_that_does(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=1, settings={"audit.enable": True}) as cluster:
        create(cluster.bootstrap, "first")
        until(lambda: "topic/first" in sources(cluster.bootstrap), "the first event")
        cluster.add_broker(2)
        create(cluster.brokers[2].bootstrap, "second")
        until(lambda: "topic/second" in sources(cluster.bootstrap), cluster.logs)
        assert sources(cluster.bootstrap) == {"topic/first": "1", "topic/second": "2"}
        with Cluster(cluster.bootstrap) as client:
            (partition,) = client.metadata()["__audit"].partitions
            assert partition.leader == 1
            until(lambda: len(client.metadata()["__audit"].partitions[0].isr) == 2, "a second replica")
