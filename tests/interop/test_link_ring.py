"""A ring of three brokers, A to B to C to A, each mirroring all topics of its neighbour: nothing comes back."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.process import BrokerProcess
from tests.waiting import until

NAMES = "abc"
TOPIC = "orders"
PARTITIONS = 3
FAST = {"link.refresh.interval.ms": 100}
QUICK, SLOW = (3_000, 3), (1_000_000, 13)
"""Messages in all, and refresh rounds: every sixth asks for all settings of the source again."""

Ring = dict[str, BrokerProcess]


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(BrokerProcess(tmp_path / name, settings=FAST)) for name in NAMES}


def call(broker: BrokerProcess, method: str, path: str, value: object = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{broker.http_url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def produce(broker: BrokerProcess, name: str, numbers: range) -> None:
    """Write the numbers, each with the name of the cluster, in large batches."""
    failed: list[str] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "batch.size": 1_000_000})
    for number in numbers:
        while True:
            try:
                producer.produce(TOPIC, f"{name}{number}", partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    assert failed == []


def topics(broker: BrokerProcess) -> set[str]:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    return {name for name in found if not name.startswith("__")}


def texts(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Everything that a topic has."""
    found: list[bytes] = []
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    with closing(Consumer(settings)) as reader:
        reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            for message in reader.consume(10_000, 1):
                if message.error() is None:
                    found.append(message.value() or b"")
                else:
                    ended.add(message.partition() or 0)
    return found


def contact_ms(broker: BrokerProcess, link: str) -> float:
    return float(call(broker, "GET", f"/links/{link}")["contact_ms"] or 0)


def wait_for_rounds(ring: Ring, rounds: int) -> None:
    """Until each link has asked its source so many times more."""
    for _ in range(rounds):
        before = {name: contact_ms(ring[name], "before") for name in NAMES}
        until(lambda: all(contact_ms(ring[name], "before") > before[name] for name in NAMES))  # noqa: B023


@pytest.mark.parametrize("size", [QUICK, pytest.param(SLOW, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_nothing_comes_back_in_a_ring_of_three(ring: Ring, size: tuple[int, int]) -> None:
    total, rounds = size
    each = total // len(NAMES)
    half = each // 2
    for name in NAMES:
        admin = AdminClient({"bootstrap.servers": ring[name].bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        produce(ring[name], name, range(half))
    for index, name in enumerate(NAMES):
        source = NAMES[index - 1]
        link = {"name": "before", "bootstrap": [ring[source].bootstrap], "topics": [".*"], "prefix": f"{source}."}
        call(ring[name], "POST", "/links", link)
    for name in NAMES:
        produce(ring[name], name, range(half, each))
    mirrors = {name: f"{NAMES[index - 1]}.{TOPIC}" for index, name in enumerate(NAMES)}
    for name in NAMES:
        until(lambda: mirrors[name] in topics(ring[name]))  # noqa: B023
    wait_for_rounds(ring, rounds)

    def is_copied(name: str) -> bool:
        (row,) = call(ring[name], "GET", "/links/before")["topics"]
        return sum(part["local_end"] or 0 for part in row["partitions"]) == each

    for index, name in enumerate(NAMES):
        until(lambda: is_copied(name))  # noqa: B023
        assert topics(ring[name]) == {TOPIC, mirrors[name]}
        for topic, writer in ((TOPIC, name), (mirrors[name], NAMES[index - 1])):
            found = texts(ring[name], topic)
            assert len(found) == each
            assert set(found) == {f"{writer}{number}".encode() for number in range(each)}
