"""Queues whose backlog has a bound, as their users see them: boto3, the SDK and Kafka producers, on a real broker."""

import threading
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, Producer

from headrace import BacklogFull, Client
from headrace.testing.process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("backlog-queues")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("backlog") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.bootstrap, http=broker.http_url) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"jobs-{uuid.uuid4().hex[:8]}"


def _boto3(broker: BrokerProcess, attempts: int = 1) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}, max_pool_connections=20),
    )


def _messages(sqs: Any, url: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return sum(int(found[each]) for each in names)


def test_boto3_is_refused_in_words_and_however_many_send_the_bound_holds(broker: BrokerProcess, name: str) -> None:
    sqs = _boto3(broker)
    attributes = {"MaxBacklogMessages": "50", "MaxBacklogPolicy": "refuse"}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes.items() <= shown.items()

    def send(number: int) -> str:
        try:
            sqs.send_message(QueueUrl=url, MessageBody=str(number))
        except ClientError as error:
            return str(error.response["Error"]["Code"]) + ": " + str(error.response["Error"]["Message"])
        return "sent"

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(send, range(120)))
    refused = [each for each in outcomes if each != "sent"]
    assert len(outcomes) - len(refused) == 50 == _messages(sqs, url)
    assert all(each.startswith("OverLimit: the backlog of the queue") for each in refused)
    assert "50 of at most 50 messages wait (queue.max.backlog.messages)" in refused[0]
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=1)["Messages"][0]
    assert send(1) != "sent", "a message in flight belongs to the backlog"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=received["ReceiptHandle"])
    assert send(1) == "sent"
    sqs.close()


def test_a_batch_of_sqs_is_sent_as_far_as_there_is_room(broker: BrokerProcess, name: str) -> None:
    sqs = _boto3(broker)
    url = sqs.create_queue(QueueName=name, Attributes={"MaxBacklogMessages": "3", "MaxBacklogPolicy": "refuse"})[
        "QueueUrl"
    ]
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(3)]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 3
    with pytest.raises(ClientError, match="OverLimit"):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert _messages(sqs, url) == 3
    sqs.close()


def test_the_sdk_and_kafka_producers_are_refused_in_words(broker: BrokerProcess, client: Client, name: str) -> None:
    queue = client.queue(name).create(max_backlog=2, max_backlog_policy="refuse")
    queue.send("one")
    queue.send("two")
    with pytest.raises(BacklogFull, match=r"the backlog is at its bound.*start more of them, or raise the bound"):
        queue.send("three")
    with pytest.raises(BacklogFull, match=r"3 of 3 messages: .*the backlog is at its bound"):
        queue.send_many(["three", "four", "five"])
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, b"three", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.POLICY_VIOLATION
    (first, second) = queue.receive(max=10)
    first.ack().result()
    queue.send("three")
    second.ack().result()


@pytest.mark.parametrize("way", ["sdk", "boto3"])
def test_senders_wait_for_room(broker: BrokerProcess, client: Client, name: str, way: str) -> None:
    queue = client.queue(name).create(max_backlog=1, max_backlog_policy="block")
    queue.send("one")
    sent = threading.Event()
    sqs = _boto3(broker, attempts=5)
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def send() -> None:
        if way == "sdk":
            queue.send("two")
        else:
            sqs.send_message(QueueUrl=url, MessageBody="two")
        sent.set()

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        (message,) = queue.receive(max=10)
        assert not sent.wait(0.5)
        message.ack().result()
        sending.result(60)
    assert [each.text for each in queue.receive(max=10, wait=20)] == ["two"]
    sqs.close()


def test_the_oldest_are_dropped_and_counted(broker: BrokerProcess, client: Client, name: str) -> None:
    queue = client.queue(name).create(max_backlog=3, max_backlog_policy="drop-oldest")
    for number in range(10):
        queue.send(str(number))
    assert [each.text for each in queue.receive(max=10, wait=20)] == ["7", "8", "9"]
    with pytest.raises(BacklogFull, match="at its bound"):
        queue.send("while all are in flight")
    until(lambda: f'headrace_queue_messages_dropped_total{{queue="{name}"}} 7' in _metrics(broker))


def test_bounds_change_at_once_and_bytes_and_age_count(broker: BrokerProcess, client: Client, name: str) -> None:
    sqs = _boto3(broker)
    queue = client.queue(name).create(max_backlog_bytes=20_000, max_backlog_policy="refuse")
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def refusal() -> str:
        try:
            sqs.send_message(QueueUrl=url, MessageBody="x" * 4000)
        except ClientError as error:
            return str(error)
        return ""

    assert [refusal() for _ in range(4)] == [""] * 4
    assert "of at most 20000 bytes wait" in refusal()
    queue.alter(max_backlog_bytes=0, max_backlog_age=0.5)
    until(lambda: "its oldest message is" in refusal())
    queue.alter(max_backlog_age=3600)
    assert refusal() == ""
    sqs.close()


def _metrics(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())
