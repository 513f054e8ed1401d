"""The metrics of a real broker, compared with what real clients did."""

import re
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.monitor.collectors.catalog import AREAS
from headrace.testing import Broker
from tests.scraped import OPENMETRICS, scrape
from tests.waiting import until

MESSAGES = 2_000
VALUE = b"x" * 500


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as one:
        yield one


def create(broker: Broker, topic: str, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=config or {})]).values():
        future.result(60)


def produce(broker: Broker, topic: str, count: int, value: bytes = VALUE, batch_bytes: int = 1_000_000) -> list[Any]:
    """Produce and return the errors."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "batch.size": batch_bytes})
    for _ in range(count):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert not producer.flush(60)
    return errors


def consume(broker: Broker, topic: str, count: int, fetch_bytes: int) -> None:
    settings = {"fetch.message.max.bytes": fetch_bytes, "max.partition.fetch.bytes": fetch_bytes}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < count:
            seen += len(consumer.consume(1000, 1.0))
        # The consumer's next fetch tells the broker how far the last one went.
        until(lambda: scrape(broker.http_url).value("headrace_topic_messages_out_total", topic=topic) >= count)
    finally:
        consumer.close()


@pytest.mark.parametrize("fetch_bytes", [1_000_000, 20_000])
def test_messages_and_bytes_of_a_topic(broker: Broker, fetch_bytes: int) -> None:
    topic = f"traffic-{fetch_bytes}"
    create(broker, topic)
    before = scrape(broker.http_url)
    assert not produce(broker, topic, MESSAGES, batch_bytes=10_000)
    consume(broker, topic, MESSAGES, fetch_bytes)
    now = scrape(broker.http_url)
    assert now.value("headrace_topic_messages_in_total", topic=topic) == MESSAGES
    assert now.value("headrace_topic_messages_out_total", topic=topic) == MESSAGES
    for direction in ("in", "out"):
        counted = now.value(f"headrace_topic_bytes_{direction}_total", topic=topic)
        assert counted > MESSAGES * len(VALUE)
        # A fetch may end within a batch, which is sent again from its start.
        assert counted < MESSAGES * len(VALUE) * (1.2 if direction == "in" else 2.2)
        assert now[f"headrace_bytes_{direction}_total"] - before[f"headrace_bytes_{direction}_total"] >= counted
    assert now["headrace_messages_in_total"] - before["headrace_messages_in_total"] >= MESSAGES


def test_requests_are_counted_and_timed_by_api(broker: Broker) -> None:
    create(broker, "requests")
    before = scrape(broker.http_url)
    requests = 20
    for _ in range(requests):
        assert not produce(broker, "requests", 1)
    now = scrape(broker.http_url, OPENMETRICS)
    made = now.value("headrace_kafka_requests_total", api="Produce")
    assert made - before.value("headrace_kafka_requests_total", 0, api="Produce") == requests
    times = {
        phase: now.value("headrace_kafka_request_seconds_sum", api="Produce", phase=phase)
        for phase in ("queue", "local", "remote", "response", "total")
    }
    assert times.pop("total") == pytest.approx(sum(times.values()))
    # Everything that is acknowledged was flushed.
    assert times["remote"] > times["local"] * 0.01
    assert now.value("headrace_kafka_request_seconds_count", api="Produce", phase="local") == made


def test_errors_are_counted_by_api_and_code(broker: Broker) -> None:
    create(broker, "small", {"max.message.bytes": "2000"})
    assert produce(broker, "small", 1, b"y" * 10_000)
    now = scrape(broker.http_url)
    assert now.value("headrace_kafka_request_errors_total", api="Produce", error="MESSAGE_TOO_LARGE") >= 1
    assert now.value("headrace_topic_bytes_rejected_total", topic="small") > 10_000
    assert now.value("headrace_topic_messages_in_total", topic="small") == 0
    with pytest.raises(KafkaException, match="exists already"):
        create(broker, "small")
    found = scrape(broker.http_url)
    assert found.value("headrace_kafka_request_errors_total", api="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1


def test_connections_and_waiting_fetches(broker: Broker) -> None:
    create(broker, "idle")
    before = scrape(broker.http_url)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 5000})
    try:
        consumer.assign([TopicPartition("idle", 0, 0)])
        until(lambda: consumer.poll(0.1) is None and scrape(broker.http_url)["headrace_kafka_requests_in_flight"] >= 1)
        now = scrape(broker.http_url)
        assert now["headrace_connections_opened_total"] > before["headrace_connections_opened_total"]
        assert now.value("headrace_connections", listener="plain") >= 1
        assert now.value("headrace_connections", listener="http") == 1
    finally:
        consumer.close()
    until(lambda: scrape(broker.http_url)["headrace_kafka_requests_in_flight"] == 0)


def test_a_topic_that_is_deleted_leaves_the_totals(broker: Broker) -> None:
    create(broker, "gone")
    assert not produce(broker, "gone", 100)
    before = scrape(broker.http_url)
    assert before.value("headrace_topic_messages_in_total", topic="gone") == 100
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["gone"])["gone"].result(60)
    until(lambda: ("gone",) not in scrape(broker.http_url).of("headrace_topic_messages_in_total"))
    assert scrape(broker.http_url)["headrace_messages_in_total"] == before["headrace_messages_in_total"]


def test_actions_of_queues_are_counted_by_code(broker: Broker) -> None:
    sqs: Any = boto3.client(
        "sqs", endpoint_url=broker.http_url, region_name="x", aws_access_key_id="x", aws_secret_access_key="x"
    )
    try:
        url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
        for number in range(3):
            sqs.send_message(QueueUrl=url, MessageBody=str(number))
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            sqs.receive_message(QueueUrl=url + "-none")
    finally:
        sqs.close()
    now = scrape(broker.http_url)
    assert now.value("headrace_sqs_requests_total", action="SendMessage", code="Success") == 3
    assert now.value("headrace_sqs_request_seconds_count", action="SendMessage") == 3
    missing = now.of("headrace_sqs_requests_total", action="ReceiveMessage")
    assert list(missing.values()) == [1]
    assert "NonExistentQueue" in next(iter(missing))[0] or "QueueDoesNotExist" in next(iter(missing))[0]


def test_without_counting_the_rest_is_served() -> None:
    with Broker(settings={"metrics.enable": False}) as broker:
        assert not produce(broker, "quiet", 10)
        now = scrape(broker.http_url)
        assert now["process_open_fds"] > 0
        assert now.value("headrace_connections", listener="plain") >= 0
        assert "headrace_kafka_requests_total" not in now.names
        assert "headrace_messages_in_total" not in now.names


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_the_page_of_metrics_and_a_scrape_have_the_same_ones(broker: Broker, accept: str) -> None:
    declared = {metric.name: metric for metrics in AREAS.values() for metric in metrics}
    text = scrape(broker.http_url, accept).text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert len(types) == text.count("# TYPE ")
    if accept:
        assert types == {
            name.removesuffix("_total" if kind == "counter" else "_info" if kind == "info" else " "): kind
            for name, kind in ((metric.name, metric.kind.value) for metric in declared.values())
        }
    else:
        assert types == {name: metric.kind.value.replace("info", "gauge") for name, metric in declared.items()}
    for name, labels in re.findall(r"^([a-z_]+)(?:\{(.*)\})? ", text, re.MULTILINE):
        metric = declared.get(name) or declared[name.rpartition("_")[0]]
        given = tuple(label for label in re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels) if label != "le")
        assert given == metric.labels, name
