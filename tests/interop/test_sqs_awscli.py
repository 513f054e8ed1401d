"""Queues through the AWS command line, as in its manual, against a real broker process.

The commands run in this process, by the same entry as `aws`, since a Python of its own for each would take most of the
time; one is run as a program.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from awscli.clidriver import create_clidriver

from headrace.testing.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("sqs-awscli")

WAIT_S = 60.0
ACCOUNT = "000000000000"
ARN = f"arn:aws:sqs:us-east-1:{ACCOUNT}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"sqs.access.keys": "AKIDEXAMPLE:secret/+key", "sqs.recreate.wait.ms": 0}
    with BrokerProcess(tmp_path_factory.mktemp("awscli") / "data", settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def environment(folder: Path) -> Iterator[dict[str, str]]:
    values = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret/+key",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_DEFAULT_OUTPUT": "json",
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_PAGER": "",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        yield values


@pytest.fixture(scope="module")
def driver(environment: dict[str, str]) -> Any:
    return create_clidriver()


@pytest.fixture
def aws(served: BrokerProcess, driver: Any, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command line; what it printed, as JSON where there is any. `fails`: with these words instead."""

    def run(line: str, fails: str = "") -> Any:
        capfd.readouterr()
        code = driver.main(["--endpoint-url", served.http_url, *shlex.split(line)])
        printed, errors = capfd.readouterr()
        if fails:
            assert code != 0
            assert fails in errors
            return None
        assert code == 0, errors
        return json.loads(printed) if printed.strip() else None

    return run


def test_the_program(served: BrokerProcess, environment: dict[str, str]) -> None:
    command = [
        sys.executable,
        "-m",
        "awscli",
        "--endpoint-url",
        served.http_url,
        "sqs",
        "create-queue",
        "--queue-name",
        "by-program",
    ]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=2 * WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["QueueUrl"].endswith(f"/{ACCOUNT}/by-program")


def test_queues(aws: Callable[..., Any], served: BrokerProcess, folder: Path) -> None:
    base = f"{served.http_url}/{ACCOUNT}"
    aws("sqs create-queue --queue-name MyDeadLetterQueue")
    policy = {"deadLetterTargetArn": f"{ARN}:MyDeadLetterQueue", "maxReceiveCount": "1000"}
    (folder / "create-queue.json").write_text(
        json.dumps({"RedrivePolicy": json.dumps(policy), "MessageRetentionPeriod": "259200"})
    )
    made = aws("sqs create-queue --queue-name MyQueue --attributes file://create-queue.json --tags Team=Blue,Cost=12")
    url = made["QueueUrl"]
    assert url == f"{base}/MyQueue"
    assert aws("sqs get-queue-url --queue-name MyQueue") == {"QueueUrl": url}
    assert url in aws("sqs list-queues --queue-name-prefix My")["QueueUrls"]
    shown = aws(f"sqs get-queue-attributes --queue-url {url} --attribute-names All")["Attributes"]
    assert shown["MessageRetentionPeriod"] == "259200"
    assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 1000
    aws(f"sqs set-queue-attributes --queue-url {url} --attributes DelaySeconds=10,MaximumMessageSize=131072")
    shown = aws(f"sqs get-queue-attributes --queue-url {url} --attribute-names DelaySeconds MaximumMessageSize")
    assert shown["Attributes"] == {"DelaySeconds": "10", "MaximumMessageSize": "131072"}
    sources = aws(f"sqs list-dead-letter-source-queues --queue-url {base}/MyDeadLetterQueue")
    assert sources["queueUrls"] == [url]
    aws(f"sqs tag-queue --queue-url {url} --tags Priority=Highest")
    aws(f"sqs untag-queue --queue-url {url} --tag-keys Cost")
    assert aws(f"sqs list-queue-tags --queue-url {url}")["Tags"] == {"Team": "Blue", "Priority": "Highest"}
    label = "SendMessagesFromMyQueue"
    aws(
        f"sqs add-permission --queue-url {url} --label {label} --aws-account-ids 111122223333 "
        "--actions SendMessage DeleteMessage"
    )
    aws(f"sqs remove-permission --queue-url {url} --label {label}")
    aws(f"sqs purge-queue --queue-url {url}")
    aws(f"sqs purge-queue --queue-url {url}", fails="PurgeQueueInProgress")
    aws(f"sqs delete-queue --queue-url {url}")
    aws("sqs get-queue-url --queue-name MyQueue", fails="AWS.SimpleQueueService.NonExistentQueue")


def test_messages(aws: Callable[..., Any], folder: Path) -> None:
    url = aws("sqs create-queue --queue-name Messages")["QueueUrl"]
    (folder / "send-message.json").write_text(
        json.dumps(
            {
                "City": {"DataType": "String", "StringValue": "Any City"},
                "Greeting": {"DataType": "Binary", "BinaryValue": "SGVsbG8sIFdvcmxkIQ=="},
                "Population": {"DataType": "Number", "StringValue": "1250800"},
            }
        )
    )
    text = "Information about the largest city in Any Region."
    sent = aws(
        f"sqs send-message --queue-url {url} --message-body {shlex.quote(text)} --delay-seconds 0 "
        "--message-attributes file://send-message.json"
    )
    assert set(sent) == {"MD5OfMessageBody", "MD5OfMessageAttributes", "MessageId"}
    (got,) = aws(
        f"sqs receive-message --queue-url {url} --attribute-names All --message-attribute-names All "
        "--max-number-of-messages 10 --wait-time-seconds 20"
    )["Messages"]
    assert (got["MessageId"], got["Body"]) == (sent["MessageId"], text)
    assert got["MessageAttributes"]["City"]["StringValue"] == "Any City"
    assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    handle = got["ReceiptHandle"]
    aws(f"sqs change-message-visibility --queue-url {url} --receipt-handle {handle} --visibility-timeout 36000")
    aws(
        f"sqs change-message-visibility-batch --queue-url {url} "
        f"--entries Id=1,ReceiptHandle={handle},VisibilityTimeout=3600"
    )
    aws(f"sqs delete-message --queue-url {url} --receipt-handle {handle}")
    entries = [
        {"Id": "FuelReport-0001", "MessageBody": "Fuel report for account 0001.", "DelaySeconds": 0},
        {"Id": "FuelReport-0002", "MessageBody": "Fuel report for account 0002."},
    ]
    (folder / "send-message-batch.json").write_text(json.dumps(entries))
    sent = aws(f"sqs send-message-batch --queue-url {url} --entries file://send-message-batch.json")
    assert [entry["Id"] for entry in sent["Successful"]] == ["FuelReport-0001", "FuelReport-0002"]
    handles: list[str] = []
    end = time.monotonic() + WAIT_S
    while len(handles) < 2:
        assert time.monotonic() < end
        answer = aws(f"sqs receive-message --queue-url {url} --max-number-of-messages 10 --wait-time-seconds 5") or {}
        handles += [message["ReceiptHandle"] for message in answer.get("Messages", [])]
    (folder / "delete.json").write_text(
        json.dumps([{"Id": f"Delete{n}", "ReceiptHandle": handle} for n, handle in enumerate(handles)])
    )
    deleted = aws(f"sqs delete-message-batch --queue-url {url} --entries file://delete.json")
    assert [entry["Id"] for entry in deleted["Successful"]] == ["Delete0", "Delete1"]
    assert aws(f"sqs receive-message --queue-url {url}") is None


def test_move_tasks(aws: Callable[..., Any], folder: Path) -> None:
    dead = aws("sqs create-queue --queue-name Letters")["QueueUrl"]
    policy = json.dumps({"RedrivePolicy": json.dumps({"deadLetterTargetArn": f"{ARN}:Letters", "maxReceiveCount": 1})})
    aws(f"sqs create-queue --queue-name Sources --attributes {shlex.quote(policy)}")
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    (folder / "letters.json").write_text(json.dumps(entries))
    for _ in range(6):
        aws(f"sqs send-message-batch --queue-url {dead} --entries file://letters.json")
    started = aws(
        f"sqs start-message-move-task --source-arn {ARN}:Letters --destination-arn {ARN}:Sources "
        "--max-number-of-messages-per-second 1"
    )
    (task,) = aws(f"sqs list-message-move-tasks --source-arn {ARN}:Letters")["Results"]
    assert (task["Status"], task["DestinationArn"]) == ("RUNNING", f"{ARN}:Sources")
    assert task["TaskHandle"] == started["TaskHandle"]
    cancelled = aws(f"sqs cancel-message-move-task --task-handle {started['TaskHandle']}")
    assert cancelled["ApproximateNumberOfMessagesMoved"] < 60
    aws(f"sqs start-message-move-task --source-arn {ARN}:None", fails="ResourceNotFoundException")
