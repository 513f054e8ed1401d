"""Messages through boto3 at their limits, against a real broker process: sizes, counts, attributes, both protocols."""

import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from botocore.exceptions import ClientError

from headrace.testing.process import BrokerProcess

pytestmark = pytest.mark.xdist_group("sqs-messages")

WAIT_S = 60.0
MIB = 1_048_576
ATTRIBUTES = {
    "k": {"DataType": "String.custom", "StringValue": "ü"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\0\1"},
}
ATTRIBUTES_BYTES = len("k") + len("String.custom") + len("ü".encode()) + len("raw") + len("Binary") + 2
TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sqs") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def sqs(served: BrokerProcess) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        endpoint_url=served.http_url,
        region_name="us-east-1",
        aws_access_key_id="a-rather-long-name-of-a-key",
        aws_secret_access_key="any",
    )
    yield client
    client.close()


@pytest.fixture
def new_queue(sqs: Any) -> Callable[..., str]:
    def make(suffix: str = "", **attributes: str) -> str:
        if suffix == ".fifo":
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        made = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:12]}{suffix}", Attributes=attributes)
        return str(made["QueueUrl"])

    return make


def arn_of(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def receive(sqs: Any, url: str, **more: Any) -> dict[str, Any]:
    """The next message, with everything that it has."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        answer = sqs.receive_message(
            QueueUrl=url, WaitTimeSeconds=5, AttributeNames=["All"], MessageAttributeNames=["All"], **more
        )
        for message in answer.get("Messages", []):
            return dict(message)
    raise AssertionError("there is no message")


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_a_message_of_a_mebibyte(sqs: Any, new_queue: Callable[..., str], suffix: str) -> None:
    """Body and attributes have 1,048,576 bytes, and neither the sender's name nor the trace header counts."""
    url = new_queue(suffix)
    group = {"MessageGroupId": "g" * 128} if suffix else {}
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": TRACE}}
    more = {"MessageAttributes": ATTRIBUTES, "MessageSystemAttributes": trace, **group}
    body = "x" * (MIB - ATTRIBUTES_BYTES)
    with pytest.raises(ClientError) as failed:
        sqs.send_message(QueueUrl=url, MessageBody=body + "x", **more)
    assert failed.value.response["Error"]["Message"] == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    )
    sqs.send_message(QueueUrl=url, MessageBody=body, **more)
    got = receive(sqs, url)
    assert (got["Body"], got["MessageAttributes"]) == (body, ATTRIBUTES)
    assert got["Attributes"]["AWSTraceHeader"] == TRACE
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])

    entries: list[dict[str, Any]] = [{"Id": str(n), "MessageBody": str(n) * 104_857, **group} for n in range(9)]
    rest = MIB - 9 * 104_857 - ATTRIBUTES_BYTES
    entries.append({"Id": "last", "MessageBody": "y" * rest, **more})
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    entries[-1]["MessageBody"] += "y"
    with pytest.raises(sqs.exceptions.BatchRequestTooLong, match="You have sent 1048577 bytes"):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)


def test_the_receive_count_goes_on_in_dead_letter_queues(sqs: Any, new_queue: Callable[..., str]) -> None:
    """The number that is shown; the limit of a queue counts its own receives."""

    def policy(letters: str, limit: int) -> str:
        return json.dumps({"deadLetterTargetArn": arn_of(sqs, letters), "maxReceiveCount": limit})

    last = new_queue(VisibilityTimeout="0")
    dead = new_queue(VisibilityTimeout="0", RedrivePolicy=policy(last, 2))
    url = new_queue(VisibilityTimeout="0", RedrivePolicy=policy(dead, 3))
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=ATTRIBUTES)
    for queue, source, counts in ((url, None, "123"), (dead, url, "45"), (last, dead, "67")):
        for expected in counts:
            got = receive(sqs, queue)
            assert got["Attributes"]["ApproximateReceiveCount"] == expected
            assert got["Attributes"].get("DeadLetterQueueSourceArn") == (source and arn_of(sqs, source))
            assert (got["MessageId"], got["MessageAttributes"]) == (sent["MessageId"], ATTRIBUTES)
    # What is moved back is as new.
    sqs.start_message_move_task(SourceArn=arn_of(sqs, last))
    got = receive(sqs, dead)
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in got["Attributes"]


def test_the_trace_id_of_a_request(sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue()

    def trace(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = TRACE

    sqs.meta.events.register("before-send.sqs.SendMessage", trace)
    try:
        sqs.send_message(QueueUrl=url, MessageBody="traced", MessageAttributes={"grün": ATTRIBUTES["k"]})
    finally:
        sqs.meta.events.unregister("before-send.sqs.SendMessage", trace)
    got = receive(sqs, url)
    assert got["Attributes"]["AWSTraceHeader"] == TRACE
    assert got["MessageAttributes"] == {"grün": ATTRIBUTES["k"]}


def test_a_program_that_reads_json_of_the_older_protocol(served: BrokerProcess, sqs: Any) -> None:
    url = sqs.create_queue(QueueName="json")["QueueUrl"]

    def call(action: str, **fields: str) -> Any:
        query = urlencode({"Action": action, **fields})
        request = urllib.request.Request(f"{url}?{query}", headers={"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.load(answer)

    sent = call("SendMessage", MessageBody="hello")["SendMessageResponse"]["SendMessageResult"]
    got = call("ReceiveMessage", AttributeName="All", WaitTimeSeconds="20")
    (message,) = got["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "hello")
    assert {"Name": "ApproximateReceiveCount", "Value": "1"} in message["Attributes"]
