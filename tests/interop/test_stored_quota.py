"""A quota of what topics and queues with a prefix store, on a real broker: slowed down, refused, and free again."""

import os
import shlex
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, Producer
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.testing.process import BrokerProcess
from tests.scraped import scrape
from tests.waiting import until

from . import batches, raw_client
from .raw_client import Connection, Error

pytestmark = pytest.mark.xdist_group("stored-quota")

LIMIT = 100_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("stored-quota") / "data") as process:
        yield process


def _run(broker: BrokerProcess, typed: str) -> str:
    environment = {"HEADRACE_BOOTSTRAP": broker.bootstrap, "HEADRACE_HTTP": broker.http_url, "COLUMNS": "300"}
    result = CliRunner().invoke(app, shlex.split(typed), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def _produce(connection: Connection, topic: str, size: int, sequence: int = -1) -> tuple[Error, str, int, int]:
    """The error and its message, the offset, and the throttle time in milliseconds."""
    producer_id, epoch = (77, 0) if sequence >= 0 else (-1, -1)
    records = batches.batch([os.urandom(size)], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    body = raw_client.produce_body(topic, records)
    answer = connection.call(raw_client.PRODUCE, 9, body)
    part = answer.responses[0].partition_responses[0]
    throttle_ms = round(answer.throttle_time.total_seconds() * 1000)
    return part.error_code, part.error_message or "", part.base_offset, throttle_ms


def _boto3(broker: BrokerProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
    )


def test_kafka_producers_are_slowed_then_refused_until_there_is_room(broker: BrokerProcess) -> None:
    raw_client.create_topic(broker.bootstrap, "tenant-a.events")
    raw_client.create_topic(broker.bootstrap, "tenant-b.events")
    shown = _run(broker, f"quota set --topic-prefix tenant-a. --stored {LIMIT}")
    assert shown == "topic-prefix tenant-a.: stored 97.7 KiB\n"
    with Connection(broker.bootstrap) as producer:
        assert _produce(producer, "tenant-a.events", 89_000, sequence=0) == (Error.none, "", 0, 0)
        # A topic that is created later counts, too.
        raw_client.create_topic(broker.bootstrap, "tenant-a.more")
        code, _, _, throttle_ms = _produce(producer, "tenant-a.more", 1_200)
        assert code is Error.none
        assert 1_000 < throttle_ms < 2_000
    with Connection(broker.bootstrap) as producer:
        code, message, _, _ = _produce(producer, "tenant-a.more", 20_000)
        assert code is Error.policy_violation
        assert "begin with 'tenant-a.' store 90" in message
        assert f"of at most {LIMIT}" in message
        assert "--topic-prefix tenant-a. --stored" in message
        # The batch that was stored is answered as a duplicate, though there is no room for it again.
        assert _produce(producer, "tenant-a.events", 89_000, sequence=0)[:3] == (Error.none, "", 0)
        assert _produce(producer, "tenant-b.events", 20_000) == (Error.none, "", 0, 0)
        assert batches.values(raw_client.fetch(producer, "tenant-a.events").records)
    failures: list[KafkaError | None] = []
    confluent = Producer({"bootstrap.servers": broker.bootstrap})
    confluent.produce("tenant-a.more", os.urandom(20_000), on_delivery=lambda error, _: failures.append(error))
    confluent.flush(20)
    (failure,) = failures
    assert failure is not None
    assert failure.code() == KafkaError.POLICY_VIOLATION

    assert "tenant-a." in _run(broker, "quota list")
    top = _run(broker, "quota top --once")
    assert "topic-prefix tenant-a.*" in top
    assert "97.7 KiB in all" in top
    figures = scrape(broker.http_url)
    assert 90_000 < figures.value("headrace_quota_stored_bytes", prefix="tenant-a.") < 91_000
    assert figures.value("headrace_quota_stored_limit_bytes", prefix="tenant-a.") == LIMIT

    with Connection(broker.bootstrap) as producer:
        producer.call(raw_client.DELETE_TOPICS, 6, topics=[{"name": "tenant-a.events"}], timeout=10_000)
        until(lambda: _produce(producer, "tenant-a.more", 20_000)[0] is Error.none)


def test_queues_count_and_boto3_is_refused_in_words(broker: BrokerProcess) -> None:
    sqs = _boto3(broker)
    url = sqs.create_queue(QueueName="tenant-c-jobs")["QueueUrl"]
    _run(broker, f"quota set --topic-prefix tenant-c- --stored {LIMIT}")
    sqs.send_message(QueueUrl=url, MessageBody="x" * 80_000)
    with pytest.raises(ClientError) as refused:
        sqs.send_message(QueueUrl=url, MessageBody="x" * 30_000)
    assert refused.value.response["Error"]["Code"] == "OverLimit"
    assert "begin with 'tenant-c-' store 80" in refused.value.response["Error"]["Message"]
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    _run(broker, "quota remove --topic-prefix tenant-c-")
    sqs.send_message(QueueUrl=url, MessageBody="x" * 30_000)
    sqs.close()
