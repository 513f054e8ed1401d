"""Queues on the workers of one machine: each is led by the worker that leads its state, and one address is enough."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.model.image import QUEUE_STATE_TOPIC
from headrace.model.state_partition import state_partition
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.wire import Cluster, Topic
from tests.waiting import until

pytestmark = pytest.mark.skipif(not is_installed(), reason="etcd is not installed")

WORKERS = 2
QUEUES = 12


def sqs(url: str, action: str, **body: object) -> dict[str, Any]:
    headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"AmazonSQS.{action}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        found: dict[str, Any] = json.loads(response.read() or b"{}")
        return found


@pytest.mark.timeout(300)
def test_new_queues_are_led_with_their_state_and_work_at_one_address(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=WORKERS, racks=["machine"]) as cluster:
        url = cluster.brokers[1].http_url
        urls = [sqs(url, "CreateQueue", QueueName=f"sqs-{number}")["QueueUrl"] for number in range(QUEUES)]
        with Cluster(cluster.bootstrap) as wire:
            for number in range(QUEUES):
                assert wire.create_topic(f"kafka-{number}", partitions=1, settings={"queue.type": "standard"})
            topics = wire.metadata()
        states = topics[QUEUE_STATE_TOPIC].partitions
        assert {state.leader for state in states} == {1, 2}
        assert {len(state.replicas) for state in states} == {1}
        queues = [topic for name, topic in topics.items() if name.startswith(("sqs-", "kafka-"))]
        assert len(queues) == 2 * QUEUES
        for queue in queues:
            assert queue.topic_id is not None
            assert states[state_partition(queue.topic_id, len(states))].leader == queue.partitions[0].leader
        assert {queue.partitions[0].leader for queue in queues} == {1, 2}
        # Also those that the other worker leads.
        for number, queue_url in enumerate(urls):
            sqs(url, "SendMessage", QueueUrl=queue_url, MessageBody=str(number))
            (message,) = sqs(url, "ReceiveMessage", QueueUrl=queue_url, WaitTimeSeconds=20)["Messages"]
            assert message["Body"] == str(number)
            sqs(url, "DeleteMessage", QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.timeout(300)
def test_the_state_of_queues_gets_a_replica_on_a_second_machine(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=WORKERS, racks=["machine"]) as cluster:
        url = sqs(cluster.brokers[1].http_url, "CreateQueue", QueueName="work")["QueueUrl"]
        sqs(cluster.brokers[1].http_url, "SendMessage", QueueUrl=url, MessageBody="kept")
        cluster.add_broker(3, rack="other")
        cluster.add_broker(4, rack="other")
        with Cluster(cluster.bootstrap) as wire:
            until(lambda: all(len(state.isr) == 2 for state in wire.metadata()[QUEUE_STATE_TOPIC].partitions))
            states = wire.metadata()[QUEUE_STATE_TOPIC].partitions
        assert all(len({1, 2}.intersection(state.replicas)) == 1 for state in states)
        (message,) = sqs(cluster.brokers[4].http_url, "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)["Messages"]
        assert message["Body"] == "kept"


def apart(topics: Mapping[str, Topic]) -> set[str]:
    """The queues that another broker leads than their state."""
    states = topics[QUEUE_STATE_TOPIC].partitions
    return {
        name
        for name, topic in topics.items()
        if name.startswith("q-")
        and topic.topic_id is not None
        and states[state_partition(topic.topic_id, len(states))].leader != topic.partitions[0].leader
    }


def rebalance(bootstrap: str, *more: str) -> str:
    command = [sys.executable, "-m", "headrace", "cluster", "rebalance", "--move", "--bootstrap", bootstrap, *more]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.timeout(300)
def test_a_rebalance_brings_existing_queues_to_their_state(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=WORKERS, racks=["machine"]) as cluster:
        url = cluster.brokers[1].http_url
        names = [f"q-{number}" for number in range(4)]
        urls = [sqs(url, "CreateQueue", QueueName=name)["QueueUrl"] for name in names]
        for name, queue_url in zip(names, urls, strict=True):
            sqs(url, "SendMessage", QueueUrl=queue_url, MessageBody=name)
        with Cluster(cluster.bootstrap) as wire:
            leaders = {name: wire.metadata()[name].partitions[0].leader for name in names}
            # As a version that knew nothing of it may have placed them.
            assert not wire.reassign({(name, 0): (3 - leader,) for name, leader in leaders.items()})
            until(lambda: apart(wire.metadata()) == set(names) and not wire.reassignments())
            shown = rebalance(cluster.bootstrap)
            assert "4 queues will be led by the brokers that lead their state" in shown
            assert "This is a plan only: --yes carries it out" in shown
            assert apart(wire.metadata()) == set(names)
            rebalance(cluster.bootstrap, "--yes")
            until(lambda: not apart(wire.metadata()))
            assert "queues are led with their state" in rebalance(cluster.bootstrap)
        for name, queue_url in zip(names, urls, strict=True):
            (message,) = sqs(url, "ReceiveMessage", QueueUrl=queue_url, WaitTimeSeconds=20)["Messages"]
            assert message["Body"] == name
