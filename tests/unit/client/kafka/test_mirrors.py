"""Which topics are described to find mirrors, and how often."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import TopicFailed, Unreachable
from headrace.client.kafka import mirrors
from headrace.client.kafka.mirrors import MirrorFinder


class Cluster:
    """Answers as an admin client: `topics` has the `mirror.source` of each topic, None without one, or an error."""

    def __init__(self, topics: dict[str, str | int | None]) -> None:
        self.topics = topics
        self.asked: list[list[str]] = []
        self.failure: int | None = None

    def list_topics(self, timeout: float) -> Any:
        if self.failure is not None:
            raise KafkaException(KafkaError(self.failure))
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def describe_configs(self, resources: list[Any], request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.asked.append([each.name for each in resources])
        return {each: self._described(each.name) for each in resources}

    def _described(self, name: str) -> "Future[Any]":
        found: Future[Any] = Future()
        source = self.topics[name]
        if isinstance(source, int):
            found.set_exception(KafkaException(KafkaError(source)))
        else:
            found.set_result({} if source is None else {"mirror.source": SimpleNamespace(value=source)})
        return found


def finder(cluster: Cluster, *names: str) -> MirrorFinder:
    return MirrorFinder(lambda: cluster, "localhost:9092", names)


def test_only_topics_with_such_a_name_are_described_and_only_once() -> None:
    cluster = Cluster(
        {"orders": None, "eu.orders": "EU/orders", "my.orders": None, "x.orders": "EU/x.orders", "a": "EU/a"}
    )
    one = finder(cluster, "orders")
    assert one.look() == {"eu.orders": "EU"}
    assert cluster.asked == [["orders", "x.orders", "eu.orders", "my.orders"]]
    cluster.topics |= {"us.orders": "US/orders"}
    assert one.look() == {"eu.orders": "EU", "us.orders": "US"}
    assert cluster.asked[1:] == [["us.orders"]]
    del cluster.topics["eu.orders"]
    cluster.topics["my.orders"] = "MY/orders"  # It was deleted, and is a mirror now.
    found = [one.look() for _ in range(5)]
    assert found[0] == {"us.orders": "US"}
    assert found[-1] == {"us.orders": "US", "my.orders": "MY"}


def test_a_topic_that_may_not_be_described_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    denied, gone = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART
    cluster = Cluster({"orders": None, "eu.orders": denied, "us.orders": "US/orders", "gone.orders": gone})
    one = finder(cluster, "orders")
    with caplog.at_level(logging.WARNING):
        assert [one.look() for _ in range(3)] == [{"us.orders": "US"}] * 3
    assert ["eu.orders" in each.getMessage() for each in caplog.records] == [True]


def test_the_number_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(mirrors, "MAX_CANDIDATES", 450)
    topics: dict[str, str | int | None] = {f"{number:04}.orders": None for number in range(1000)}
    cluster = Cluster({**topics, "eu.orders": "EU/orders"})
    assert finder(cluster, "orders").look() == {"eu.orders": "EU"}
    assert [len(each) for each in cluster.asked] == [200, 200, 50]
    assert "450" in caplog.text


@pytest.mark.parametrize(
    ("code", "error"),
    [(KafkaError._TRANSPORT, Unreachable), (KafkaError.CLUSTER_AUTHORIZATION_FAILED, TopicFailed)],
)
def test_failures_are_errors_of_the_sdk(code: int, error: type[Exception]) -> None:
    cluster = Cluster({})
    cluster.failure = code
    with pytest.raises(error, match="finding mirror topics failed"):
        finder(cluster, "orders").look()
