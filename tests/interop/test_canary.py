"""The canary of a broker: off by default, turned on while it runs, and in the metrics."""

import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from headrace.testing import Broker
from headrace.wire import Cluster, ConfigResource
from tests.waiting import until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def canary(broker: Broker) -> dict[tuple[str, str], float]:
    """The metrics by name and path."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {
        (each.name.removeprefix("headrace_canary_"), each.labels["path"]): each.value
        for family in families
        for each in family.samples
        if each.name.startswith("headrace_canary_") and "le" not in each.labels
    }


def test_it_is_turned_on_and_off(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        assert canary(broker) == {}
        assert "__canary" not in cluster.metadata()
        on = {"canary.enable": "true", "canary.interval.ms": "100"}
        cluster.alter_settings(ConfigResource.BROKER, "", on)
        until(lambda: min(canary(broker).get(("messages_received_total", path), 0) for path in ("topic", "queue")) >= 3)
        found = canary(broker)
        for path in ("topic", "queue"):
            assert found["messages_lost_total", path] == 0
            assert 0 < found["produce_latency_seconds_sum", path] <= found["roundtrip_latency_seconds_sum", path]
        assert {"__canary", "__canary_queue_0"} <= cluster.metadata().keys()
        cluster.alter_settings(ConfigResource.BROKER, "", {"canary.enable": "false"})

        def is_steady() -> bool:
            before = canary(broker)
            broker_rests = cluster.list_offsets([("__canary", 0)])
            return before == canary(broker) and broker_rests == cluster.list_offsets([("__canary", 0)])

        until(is_steady)


def test_a_queue_that_is_deleted_comes_back(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.alter_settings(ConfigResource.BROKER, "", {"canary.enable": "true", "canary.interval.ms": "100"})
        until(lambda: canary(broker).get(("messages_received_total", "queue"), 0) >= 1)
        cluster.delete_topic("__canary_queue_0")
        before = canary(broker)["messages_received_total", "queue"]
        until(lambda: canary(broker)["messages_received_total", "queue"] > before + 2)


def test_clients_cannot_write_to_it(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        cluster.alter_settings(ConfigResource.BROKER, "", {"canary.enable": "true"})
        until(lambda: "__canary" in cluster.metadata())
    errors = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("__canary", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0] is not None
