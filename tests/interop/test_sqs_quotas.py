"""Quotas of queues and access keys over SQS: boto3 sees AWS's code, and with retries gets through."""

import shlex
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.testing.process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("sqs-quotas")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sqs-quotas") / "data") as process:
        yield process


@pytest.fixture
def queue() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def _boto3(broker: BrokerProcess, attempts: int, key: str = "any") -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
    )


def _send(sqs: Any, url: str, count: int) -> None:
    for _ in range(count):
        sqs.send_message(QueueUrl=url, MessageBody="x")


def _run(broker: BrokerProcess, typed: str) -> str:
    environment = {"HEADRACE_BOOTSTRAP": broker.bootstrap, "HEADRACE_HTTP": broker.http_url, "COLUMNS": "240"}
    result = CliRunner().invoke(app, shlex.split(typed), env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_boto3_is_throttled_and_gets_through_with_its_retries(broker: BrokerProcess, queue: str) -> None:
    once, patient = _boto3(broker, 1), _boto3(broker, 8)
    url = once.create_queue(QueueName=queue)["QueueUrl"]
    assert _run(broker, f"quota set --queue {queue} --requests 5") == f"queue {queue}: requests 5/s\n"
    with pytest.raises(ClientError) as refused:
        _send(once, url, 20)
    error = refused.value.response
    assert error["Error"]["Code"] == "RequestThrottled"
    assert f"queue {queue} has used up its quota of 5 requests each second" in error["Error"]["Message"]
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert isinstance(refused.value, once.exceptions.RequestThrottled)
    _send(patient, url, 8)
    shown = _run(broker, "quota list")
    assert queue in shown
    assert f"queue {queue}" in until(lambda: _run(broker, "quota top --once"))
    _run(broker, f"quota remove --queue {queue}")
    _send(once, url, 20)
    once.close()
    patient.close()


def test_messages_of_an_access_key(broker: BrokerProcess, queue: str) -> None:
    key = uuid.uuid4().hex[:12]
    mine, other = _boto3(broker, 1, key), _boto3(broker, 1)
    url = mine.create_queue(QueueName=queue)["QueueUrl"]
    _run(broker, f"quota set --access-key {key} --messages 2")
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
    mine.send_message_batch(QueueUrl=url, Entries=entries)
    with pytest.raises(ClientError, match="RequestThrottled"):
        mine.send_message(QueueUrl=url, MessageBody="x")
    other.send_message(QueueUrl=url, MessageBody="x")
    assert mine.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    mine.close()
    other.close()


@pytest.mark.parametrize("form", ["{url}/", "{url}?x=1", "{url}#x", "{queue}"])
def test_a_queue_has_its_quota_in_every_form_of_its_url(broker: BrokerProcess, queue: str, form: str) -> None:
    sqs = _boto3(broker, 1)
    url = sqs.create_queue(QueueName=queue)["QueueUrl"]
    _run(broker, f"quota set --queue {queue} --requests 0.01")
    _send(sqs, url, 1)
    with pytest.raises(ClientError, match="RequestThrottled"):
        _send(sqs, form.format(url=url, queue=queue), 1)
    _run(broker, f"quota remove --queue {queue}")
