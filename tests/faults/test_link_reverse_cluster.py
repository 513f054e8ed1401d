"""A former source of three brokers becomes a mirror, while the broker that leads most of it is killed.

The long test of this is `test_link_reverse_network.py`.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from headrace.testing.process import BrokerProcess
from tests.faults.link_clients import committed, read, send, set_aside
from tests.interop import subject
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(not subject.IS_HEADRACE, reason="about clusters of Headrace"),
    pytest.mark.skipif(not is_installed(), reason="etcd is not installed"),
]

TOPIC, GROUP, PARTITIONS = "orders", "billing", 3
COPIED, APART, SIZE = 30, 6000, 1000
SETTINGS = {
    "link.refresh.interval.ms": 200,
    "broker.session.timeout.ms": 3000,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "replica.fetch.wait.max.ms": 200,
}


def call(http_url: str, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{http_url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def bytes_of(broker: BrokerProcess, partition: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((broker.data_dir / f"{TOPIC}-{partition}").glob("*.log")))


def leaders(cluster: ClusterProcesses) -> dict[int, int]:
    found = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(TOPIC, timeout=30).topics[TOPIC]
    return {index: partition.leader for index, partition in found.partitions.items()}


def test_a_cluster_becomes_a_mirror_while_a_leader_is_killed(tmp_path: Path) -> None:
    taker = BrokerProcess(tmp_path / "taker", settings={"link.refresh.interval.ms": 200})
    with ClusterProcesses(tmp_path / "source", settings=SETTINGS) as source:
        try:
            taker.start()
            reversed_while_killed(source, taker)
        finally:
            taker.close()


def reversed_while_killed(source: ClusterProcesses, taker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    copied = send(source.bootstrap, TOPIC, PARTITIONS, COPIED, "copied", SIZE)
    addresses = source.bootstrap.split(",")
    call(taker.http_url, "POST", "/links", {"name": "eu", "bootstrap": addresses, "topics": [TOPIC]})
    until(lambda: [row["lag_messages"] for row in call(taker.http_url, "GET", "/links/eu")["topics"]] == [0])
    call(taker.http_url, "POST", f"/mirrors/{TOPIC}/failover", {})
    apart = send(source.bootstrap, TOPIC, PARTITIONS, APART, "apart", SIZE)
    there = send(taker.bootstrap, TOPIC, PARTITIONS, COPIED, "there", SIZE)
    commit(source.bootstrap, 1000)
    call(source.http_url, "POST", "/links", {"name": "us", "bootstrap": [taker.bootstrap], "topics": [TOPIC]})

    wanted: dict[str, object] = {"topic": TOPIC, "timeout_s": 0.05}
    begun = call(source.http_url, "POST", "/links/us/reverse", wanted)
    led = list(leaders(source).values())
    killed = max(led, key=led.count)
    source.kill(killed)

    def complete() -> dict[str, Any]:
        # A request at each broker in turn: none of them does all of it.
        for broker_id in source.running:
            try:
                answer = call(source.brokers[broker_id].http_url, "POST", "/links/us/reverse", wanted)
            except HTTPError as error:
                if error.code != 503:
                    raise
                continue
            if answer["is_complete"]:
                return dict(answer)
        return {}

    done = until(complete, "the reversal is complete without the broker")
    assert done is not None
    source.start_broker(killed)
    assert (begun["is_complete"], done["set_aside"]) == (False, APART)
    aside = set_aside(source.bootstrap, TOPIC, PARTITIONS)
    assert aside.values == {place: {value} for place, value in apart.items()}
    for index in range(PARTITIONS):
        for broker in source.brokers.values():
            until(lambda at=broker, i=index: bytes_of(at, i) == bytes_of(taker, i))  # type: ignore[misc]
    last = dict.fromkeys(range(PARTITIONS), 2 * COPIED // PARTITIONS + 1)
    assert read(source.bootstrap, TOPIC, [0] * PARTITIONS, last) == copied | there
    parting = COPIED // PARTITIONS
    assert committed(source.bootstrap, TOPIC, GROUP, PARTITIONS) == [parting] * PARTITIONS
    check_logs(source)


def commit(bootstrap: str, offset: int) -> None:
    """The group has read messages that the other cluster never had."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})) as consumer:
        places = [TopicPartition(TOPIC, index, offset) for index in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)


def check_logs(source: ClusterProcesses) -> None:
    """Followers say that they truncate with their leader, and raise no alarm about it."""
    text = "".join(file.read_text() for file in source.folder.glob("broker-*.log"))
    assert "the rest was set aside when its topic was reversed" in text
    assert "that was committed" not in text
    assert "Traceback" not in text
