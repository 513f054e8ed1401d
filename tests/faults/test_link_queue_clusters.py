"""A queue over a link between clusters of three brokers: leaders are killed on both sides, and the source is lost."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from headrace import Client
from headrace.testing.cluster import ClusterProcesses
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 200, "broker.session.timeout.ms": 3000, "min.insync.replicas": 2}
MESSAGES, DELETED, KILLS = 1_000, 600, 3


def call(cluster: ClusterProcesses, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{cluster.http_url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=90) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def mirror(cluster: ClusterProcesses) -> dict[str, Any]:
    topics: list[dict[str, Any]] = call(cluster, "GET", "/links/eu")["topics"]
    return next((each for each in topics if each["topic"] == "jobs"), {})


def leader_of(cluster: ClusterProcesses) -> int:
    with Client(cluster.bootstrap) as client:
        leader = client.topics.describe("jobs").partitions[0].leader
    assert leader is not None
    return leader


def until_state(cluster: ClusterProcesses) -> None:
    """Wait until what the source has now is here."""
    began = time.monotonic()

    def is_copied() -> bool:
        found = mirror(cluster)
        age_s = found.get("state_seconds")
        return found.get("lag_messages") == 0 and age_s is not None and age_s < time.monotonic() - began

    until(is_copied, lambda: str(mirror(cluster)))


def delete(client: Client, count: int) -> set[str]:
    """The texts of so many messages that were received and deleted."""
    deleted: set[str] = set()
    while len(deleted) < count:
        for message in client.queue("jobs").receive(min(100, count - len(deleted)), wait=5):
            message.ack().result(60)
            deleted.add(message.text)
    return deleted


@pytest.mark.slow
def test_leaders_are_killed_and_the_home_moves(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path / "eu", settings=FAST) as source,
        ClusterProcesses(tmp_path / "us", settings=FAST) as target,
    ):
        with Client(source.bootstrap) as client:
            client.queue("jobs").create(visibility=600)
            client.queue("jobs").send_many([f"{number}" for number in range(MESSAGES)])
            wanted = {"name": "eu", "bootstrap": source.bootstrap.split(","), "topics": ["jobs"], "sync": ["queues"]}
            call(target, "POST", "/links", wanted)
            until(lambda: mirror(target))
            deleted: set[str] = set()
            for _ in range(KILLS):
                deleted |= delete(client, DELETED // KILLS)
                for cluster in (source, target):
                    cluster.restart(leader_of(cluster), kill=True)
                    cluster.await_ready(60)
            until_state(target)
        for broker in source.brokers.values():
            broker.kill()
        call(target, "POST", "/mirrors/jobs/failover", {})
        with Client(target.bootstrap) as client:
            left = delete(client, MESSAGES - DELETED)
            assert client.queue("jobs").receive(1, wait=1) == []
        assert not left & deleted
        assert left | deleted == {f"{number}" for number in range(MESSAGES)}
