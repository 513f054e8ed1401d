"""How many replicas a queue or a group needs, asked of a real broker, and the example for KEDA in deploy/."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml  # type: ignore[import-untyped]
from confluent_kafka import Consumer, TopicPartition

from headrace import Client
from headrace.testing import Broker
from tests.waiting import until

from .api import call

EXAMPLE = Path(__file__).parents[3] / "deploy" / "keda" / "scaledobject.yaml"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        with Client(one.bootstrap) as client:
            client.queue("emails").create()
            client.queue("emails").send_many([f"mail {number}" for number in range(500)])
            client.topics.create("orders", partitions=4)
            for number in range(40):
                client.publish_soon("orders", str(number), partition=number % 4)
        # Figures are up to a second old: until then the queue is not known.
        until(lambda: call(one.http_url, "GET", "/scale/queue/emails").status == 200)
        yield one


def scale(broker: Broker, path: str) -> Any:
    answer = call(broker.http_url, "GET", f"/scale/{path}")
    assert answer.status == 200, answer
    return answer.value


def queue_scale(broker: Broker, query: str) -> Any:
    """Figures are up to a second old."""
    return until(lambda: found if (found := scale(broker, f"queue/emails?{query}"))["lag_messages"] == 500 else None)


def test_a_queue_wants_as_many_as_drain_it_in_time(broker: Broker) -> None:
    found = queue_scale(broker, "max=20&target_seconds=10&per_replica_per_s=10")
    assert (found["desired_replicas"], found["cap"], found["replicas"]) == (5, None, None)
    assert "500 waiting" in found["reason"]
    assert found["lag_seconds"] > 0
    assert queue_scale(broker, "max=3&target_seconds=10&per_replica_per_s=10")["desired_replicas"] == 3
    assert queue_scale(broker, "target_seconds=10000&per_replica_per_s=10")["desired_replicas"] == 1


def test_a_group_that_never_committed_wakes_up(broker: Broker) -> None:
    unknown = scale(broker, "group/nobody?min=0")
    assert unknown["desired_replicas"] == 1
    assert "committed nothing" in unknown["reason"]
    found = scale(broker, "group/nobody?min=0&topic=orders")
    assert (found["desired_replicas"], found["lag_messages"], found["cap"]) == (1, 40, 4)
    assert scale(broker, "group/nobody?min=0&topic=orders&start=latest")["desired_replicas"] == 1
    assert scale(broker, "group/nobody?topic=orders&per_replica_per_s=0.1&target_seconds=10")["desired_replicas"] == 4


def test_a_group_never_wants_more_than_its_partitions(broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    # In one of four partitions; the others count from their beginning.
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    consumer.close()
    found = scale(broker, "group/billing?per_replica_per_s=1&target_seconds=1&max=50")
    assert (found["desired_replicas"], found["lag_messages"], found["cap"]) == (4, 36, 4)
    assert "it has 4 partitions" in found["reason"]
    assert scale(broker, "group/billing?per_replica_per_s=1&target_seconds=18")["desired_replicas"] == 2
    assert scale(broker, "group/billing?start=latest")["lag_messages"] == 6
    # Slashes are part of a name.
    assert scale(broker, "group/a/b?topic=orders")["lag_messages"] == 40


@pytest.mark.parametrize(
    ("path", "refusal"),
    [
        ("queue/nothing", (404, "unknown_queue")),
        ("queue/emails?min=5&max=2", (400, "invalid_request")),
        ("queue/emails?target_seconds=0", (400, "invalid_request")),
        ("queue/emails?minimum=1", (400, "invalid_request")),
        ("group/billing?max=many", (400, "invalid_request")),
    ],
)
def test_refused_in_words(broker: Broker, path: str, refusal: tuple[int, str]) -> None:
    answer = call(broker.http_url, "GET", f"/scale/{path}")
    assert (answer.status, answer.value["error"]) == refusal


def test_the_example_for_keda_reads_the_answer(broker: Broker) -> None:
    objects = [each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "ScaledObject"]
    assert len(objects) == 2
    for each in objects:
        for trigger in each["spec"]["triggers"]:
            assert trigger["type"] == "metrics-api"
            wanted = trigger["metadata"]
            url = urlsplit(wanted["url"])
            answer = call(broker.http_url, "GET", f"{url.path.removeprefix('/api/v1')}?{url.query}")
            assert answer.status == 200, answer
            # KEDA reads the path with GJSON, and wants a number or a quantity.
            value = answer.value
            for part in wanted["valueLocation"].split("."):
                value = value[part]
            assert isinstance(value, int)
            assert each["spec"]["minReplicaCount"] < value <= each["spec"]["maxReplicaCount"]
            assert float(wanted["targetValue"]) == 1
