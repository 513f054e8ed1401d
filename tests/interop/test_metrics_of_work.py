"""Metrics of groups, queues, transactions, compaction and security of a real broker, compared with what clients see."""

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headrace import Client
from headrace.testing import Broker
from tests.scraped import Scrape, scrape
from tests.waiting import until

PARTITIONS = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "log.cleaner.backoff.ms": 200}
    with Broker(settings=settings) as one:
        yield one


@pytest.fixture(scope="module")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def sqs(broker: Broker) -> Iterator[Any]:
    client: Any = boto3.client(
        "sqs", endpoint_url=broker.http_url, region_name="x", aws_access_key_id="x", aws_secret_access_key="x"
    )
    yield client
    client.close()


def create(admin: AdminClient, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(60)


def offsets(admin: AdminClient, topic: str, spec: Any) -> dict[int, int]:
    wanted = {TopicPartition(topic, partition): spec for partition in range(PARTITIONS)}
    found = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {place.partition: future.result(60).offset for place, future in found.items()}


def test_kafka_exporters_names_have_what_clients_compute(broker: Broker, admin: AdminClient) -> None:
    topic, group = "exported", "readers"
    create(admin, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert not producer.flush(60)
    admin.delete_records([TopicPartition(topic, 1, 10)])
    until(lambda: offsets(admin, topic, OffsetSpec.earliest())[1] == 10)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    seen = 0
    while seen < 290:
        seen += len(consumer.consume(290 - seen, 1.0))
    written_s = time.time()
    committed = {0: 40, 1: 50, 2: 100}
    consumer.commit(offsets=[TopicPartition(topic, *each) for each in committed.items()], asynchronous=False)
    now = scrape(broker.http_url)
    newest = offsets(admin, topic, OffsetSpec.latest())
    for partition, end in newest.items():
        labels = {"topic": topic, "partition": str(partition)}
        assert now.value("kafka_topic_partition_current_offset", **labels) == end
        assert now.value("kafka_consumergroup_current_offset", consumergroup=group, **labels) == committed[partition]
        assert now.value("kafka_consumergroup_lag", consumergroup=group, **labels) == end - committed[partition]
        assert now.value("kafka_topic_partition_replicas", **labels) == 1
        assert now.value("kafka_topic_partition_leader_is_preferred", **labels) == 1
        assert now.value("kafka_topic_partition_under_replicated_partition", **labels) == 0
        behind_s = now.value("headrace_group_lag_seconds", group=group, **labels)
        if end == committed[partition]:
            assert behind_s == 0
        else:
            assert 0 < behind_s < time.time() - written_s + 60
    oldest = now.of("kafka_topic_partition_oldest_offset", topic=topic)
    assert oldest == {(str(k),): v for k, v in offsets(admin, topic, OffsetSpec.earliest()).items()}
    assert now.value("kafka_topic_partitions", topic=topic) == PARTITIONS
    assert now.value("kafka_consumergroup_members", consumergroup=group) == 1
    assert now.value("kafka_consumergroup_lag_sum", consumergroup=group, topic=topic) == 300 - 190
    assert now.value("kafka_consumergroup_current_offset_sum", consumergroup=group, topic=topic) == 190
    assert now.value("headrace_group_state", group=group, kind="classic", state="Stable") == 1
    assert now["kafka_brokers"] == 1
    assert now.value("kafka_broker_info", id="0", address=broker.bootstrap) == 1
    assert now["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    consumer.close()
    stopped = scrape(broker.http_url)
    # The lag stays when its consumers have stopped.
    assert stopped.value("kafka_consumergroup_members", consumergroup=group) == 0
    assert stopped.value("kafka_consumergroup_lag_sum", consumergroup=group, topic=topic) == 110
    request = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(request)[group].result(60)
    assert {each.partition: each.offset for each in answer.topic_partitions} == committed


def queue_counts(found: Scrape, queue: str) -> dict[str, float]:
    names = ("sent", "received", "redelivered", "deleted", "dead_lettered")
    counts = {name: found.value(f"headrace_queue_messages_{name}_total", queue=queue) for name in names}
    return {**counts, "empty": found.value("headrace_queue_empty_receives_total", queue=queue)}


def test_queues_count_what_happens_to_messages(broker: Broker, sqs: Any) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 2}}'
    url = sqs.create_queue(QueueName="work", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    for number in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    first = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=3)["Messages"]
    assert len(first) == 3
    now = scrape(broker.http_url)
    assert now.value("headrace_queue_visible_messages", queue="work") == 2
    assert now.value("headrace_queue_in_flight_messages", queue="work") == 3
    assert now.value("headrace_queue_delayed_messages", queue="work") == 1
    assert 0 <= now.value("headrace_queue_oldest_message_age_seconds", queue="work") < 60
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    for message in first[1:]:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    again = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert len(again) == 4
    for message in again:
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    # Two of them were received twice by now, and become dead letters.
    until(lambda: queue_counts(scrape(broker.http_url), "work")["dead_lettered"] == 2)
    expected = {"sent": 6, "received": 7, "redelivered": 2, "deleted": 1, "dead_lettered": 2, "empty": 1}
    assert queue_counts(scrape(broker.http_url), "work") == expected
    until(lambda: scrape(broker.http_url).value("headrace_queue_dead_letters", queue="dead") == 2)
    assert scrape(broker.http_url).value("headrace_queue_messages_sent_total", queue="dead") == 2


def test_a_queue_counts_messages_of_every_client(broker: Broker, sqs: Any) -> None:
    with Client(broker.bootstrap) as client:
        mails = client.queue("mails").create()
        mails.send("from the SDK")
        mails.send_many(["two", "at once"])
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName="mails")["QueueUrl"], MessageBody="from an SQS client")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("mails", b"from a Kafka client")
    assert producer.flush(60) == 0
    sent = "headrace_queue_messages_sent_total"
    until(lambda: scrape(broker.http_url).value(sent, queue="mails") == 5)

    ordered = sqs.create_queue(QueueName="ordered.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for dedupe in ("a", "b", "a"):
        sqs.send_message(QueueUrl=ordered, MessageBody="x", MessageGroupId="g", MessageDeduplicationId=dedupe)
    assert scrape(broker.http_url).value(sent, queue="ordered.fifo") == 2


def test_transactions(broker: Broker, admin: AdminClient) -> None:
    create(admin, "ledger")
    before = scrape(broker.http_url)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "teller"})
    producer.init_transactions(60)
    for commits in (True, True, False):
        producer.begin_transaction()
        producer.produce("ledger", b"entry")
        producer.flush(60)
        open_now = scrape(broker.http_url)
        assert open_now["headrace_transactions_open"] == 1
        assert 0 <= open_now["headrace_transaction_oldest_open_seconds"] < 60
        producer.commit_transaction(60) if commits else producer.abort_transaction(60)

    def ended(name: str) -> float:
        return scrape(broker.http_url)[name] - before[name]

    until(lambda: ended("headrace_transactions_committed_total") == 2)
    until(lambda: ended("headrace_transactions_aborted_total") == 1)
    now = scrape(broker.http_url)
    assert (now["headrace_transactions_open"], now["headrace_transaction_oldest_open_seconds"]) == (0, 0)
    assert now["headrace_transactional_ids"] == 1


def test_flushes_and_compaction(broker: Broker, admin: AdminClient) -> None:
    config = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}
    create(admin, "compacted", 1, config)
    before = scrape(broker.http_url)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 4096})
    for number in range(500):
        producer.produce("compacted", b"v" * 100, key=str(number % 5))
    assert not producer.flush(60)
    flushed = scrape(broker.http_url)
    assert flushed["headrace_flush_seconds_count"] > before["headrace_flush_seconds_count"]
    assert flushed["headrace_flush_records_sum"] - before["headrace_flush_records_sum"] >= 500
    until(lambda: scrape(broker.http_url)["headrace_cleaner_compactions_total"] > 0)
    now = scrape(broker.http_url)
    assert now["headrace_cleaner_records_removed_total"] > 0
    assert 0 < now["headrace_cleaner_bytes_removed_total"] < now["headrace_cleaner_bytes_read_total"]
    assert now["headrace_cleaner_uncleanable_logs"] == 0
    assert now["headrace_disk_free_bytes"] > 0
    sizes = now.of("headrace_partition_size_bytes")
    assert now["headrace_log_size_bytes"] == sum(sizes.values())
    assert now["headrace_partitions"] == len(sizes)


def test_what_is_beyond_the_bounds_is_counted() -> None:
    bounds = {"metrics.topic.max": 1, "metrics.partition.max": 2, "metrics.group.max": 0, "metrics.queue.max": 0}
    with Broker(settings={**bounds, "offsets.topic.num.partitions": 1}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create(admin, "first", 1)
        create(admin, "second", 3)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("first", 0, 0)], asynchronous=False)
        consumer.close()
        now = scrape(broker.http_url)
        assert list(now.of("headrace_topic_messages_in_total")) == [("first",)]
        assert len(now.of("headrace_partition_size_bytes")) == 2
        assert not now.of("kafka_consumergroup_members")
        assert now.of("headrace_metrics_omitted") == {
            ("topics",): 2,
            ("partitions",): 3,
            ("groups",): 1,
            ("group_partitions",): 0,
            ("queues",): 0,
        }
        assert now["headrace_partitions"] == 5
