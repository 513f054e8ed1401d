"""Queues through boto3, as its users type it, against a real broker process."""

import hashlib
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from headrace.testing.process import BrokerProcess

from .sqs_brokers import (  # noqa: F401
    ACCOUNT,
    KEY,
    SECRET,
    WAIT_S,
    arn_of,
    client_of,
    count,
    new_queue,
    plain,
    plain_process,
    receive,
    served,
    sqs,
    until,
)

pytestmark = pytest.mark.xdist_group("sqs-boto3")


def test_the_examples_of_the_boto3_guide(sqs: Any) -> None:
    """Creating, sending, receiving with attributes, deleting, as in "Working with Amazon SQS"."""
    response = sqs.create_queue(
        QueueName="SQS_QUEUE_NAME", Attributes={"DelaySeconds": "0", "MessageRetentionPeriod": "86400"}
    )
    assert response["QueueUrl"].endswith(f"/{ACCOUNT}/SQS_QUEUE_NAME")
    queue_url = sqs.get_queue_url(QueueName="SQS_QUEUE_NAME")["QueueUrl"]
    assert queue_url in sqs.list_queues(QueueNamePrefix="SQS_")["QueueUrls"]
    body = "Information about current NY Times fiction bestseller for week of 12/11/2016."
    sent = sqs.send_message(
        QueueUrl=queue_url,
        DelaySeconds=0,
        MessageAttributes={
            "Title": {"DataType": "String", "StringValue": "The Whistler"},
            "Author": {"DataType": "String", "StringValue": "John Grisham"},
            "WeeksOn": {"DataType": "Number", "StringValue": "6"},
        },
        MessageBody=body,
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
    response = sqs.receive_message(
        QueueUrl=queue_url,
        AttributeNames=["SentTimestamp"],
        MaxNumberOfMessages=1,
        MessageAttributeNames=["All"],
        VisibilityTimeout=0,
        WaitTimeSeconds=5,
    )
    (message,) = response["Messages"]
    assert message["MessageAttributes"]["Author"]["StringValue"] == "John Grisham"
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_queue(QueueUrl=queue_url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="SQS_QUEUE_NAME")


def test_the_resource_interface(served: BrokerProcess) -> None:
    """As in the "A sample tutorial" of boto3."""
    sqs = boto3.resource(
        "sqs",
        endpoint_url=served.http_url,
        region_name="eu-central-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    queue = sqs.create_queue(QueueName="test", Attributes={"DelaySeconds": "0"})
    assert queue.attributes.get("DelaySeconds") == "0"
    queue = sqs.get_queue_by_name(QueueName="test")
    assert [each.url for each in sqs.queues.filter(QueueNamePrefix="test")] == [queue.url]
    response = queue.send_messages(
        Entries=[
            {"Id": "1", "MessageBody": "world"},
            {
                "Id": "2",
                "MessageBody": "boto3",
                "MessageAttributes": {"Author": {"StringValue": "Daniel", "DataType": "String"}},
            },
        ]
    )
    assert {entry["Id"] for entry in response["Successful"]} == {"1", "2"}
    assert "Failed" not in response
    texts: set[str] = set()
    end = time.monotonic() + WAIT_S
    while len(texts) < 2 and time.monotonic() < end:
        for message in queue.receive_messages(
            MessageAttributeNames=["Author"], MaxNumberOfMessages=10, WaitTimeSeconds=2
        ):
            author = (message.message_attributes or {}).get("Author", {}).get("StringValue")
            texts.add(f"Hello, {message.body}!" + (f" ({author})" if author else ""))
            message.delete()
    assert texts == {"Hello, world!", "Hello, boto3! (Daniel)"}
    queue.delete()
    sqs.meta.client.close()


def test_every_action_on_queues(sqs: Any, new_queue: Callable[..., str]) -> None:
    dead, url = new_queue(), new_queue()
    dead_arn = arn_of(sqs, dead)
    policy = {"deadLetterTargetArn": dead_arn, "maxReceiveCount": 5}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "77"})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert json.loads(shown["RedrivePolicy"]) == policy
    assert shown["VisibilityTimeout"] == "77"
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sqs.tag_queue(QueueUrl=url, Tags={"team": "blue", "stage": "test"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blue"}
    sqs.add_permission(QueueUrl=url, Label="share", AWSAccountIds=["111122223333"], Actions=["SendMessage"])
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    assert json.loads(shown["Policy"])["Statement"][0]["Sid"] == "share"
    sqs.remove_permission(QueueUrl=url, Label="share")
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="q-", PaginationConfig={"PageSize": 1})
    assert {url, dead} <= {each for page in pages for each in page["QueueUrls"]}
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=url.rpartition("/")[2], Attributes={"VisibilityTimeout": "1"})
    with pytest.raises(sqs.exceptions.InvalidAttributeName):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Nonsense": "1"})
    missing = {"deadLetterTargetArn": dead_arn + "x", "maxReceiveCount": 5}
    with pytest.raises(ClientError, match="Dead letter target does not exist"):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(missing)})
    sqs.send_message(QueueUrl=url, MessageBody="soon gone")
    sqs.purge_queue(QueueUrl=url)
    until(lambda: count(sqs, url), 0)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=url, MessageBody="too late")


def test_booleans_as_python_writes_them(sqs: Any, new_queue: Callable[..., str]) -> None:
    name = f"q-{uuid.uuid4().hex[:12]}.fifo"
    given = {"FifoQueue": str(True), "ContentBasedDeduplication": str(True), "SqsManagedSseEnabled": str(False)}
    url = sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
    assert sqs.create_queue(QueueName=name, Attributes=given)["QueueUrl"] == url
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(given))["Attributes"]
    assert shown == {name: value.lower() for name, value in given.items()}
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody="once", MessageGroupId="g")
    until(lambda: count(sqs, url), 1)
    standard = new_queue()
    with pytest.raises(sqs.exceptions.InvalidAttributeName, match=r"Unknown Attribute FifoQueue\."):
        sqs.set_queue_attributes(QueueUrl=standard, Attributes={"FifoQueue": str(False)})
    with pytest.raises(sqs.exceptions.InvalidAttributeValue, match="for the parameter SqsManagedSseEnabled"):
        sqs.set_queue_attributes(QueueUrl=standard, Attributes={"SqsManagedSseEnabled": "perhaps"})


def test_a_queue_that_is_its_own_dead_letter_queue(sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue(VisibilityTimeout="0")
    own = arn_of(sqs, url)
    policy = json.dumps({"deadLetterTargetArn": own, "maxReceiveCount": "2"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    shown = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]["RedrivePolicy"]
    assert json.loads(shown) == {"deadLetterTargetArn": own, "maxReceiveCount": 2}
    assert sqs.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    sent = sqs.send_message(QueueUrl=url, MessageBody="stubborn")
    for _ in range(5):
        (message,) = receive(sqs, url, 1)
        assert message["MessageId"] == sent["MessageId"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])


def test_errors_about_queues_are_those_that_boto3_knows(sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue()
    arn, name = arn_of(sqs, url), url.rpartition("/")[2]
    known = sqs.exceptions
    for kind, code, ask in (
        (
            known.QueueDoesNotExist,
            "AWS.SimpleQueueService.NonExistentQueue",
            lambda: sqs.get_queue_url(QueueName="none"),
        ),
        (known.QueueNameExists, "QueueAlreadyExists", lambda: sqs.create_queue(QueueName=name, tags={"a": "b"})),
        (
            known.InvalidAttributeName,
            "InvalidAttributeName",
            lambda: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Nonsense"]),
        ),
        (
            known.InvalidAttributeValue,
            "InvalidAttributeValue",
            lambda: sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "no json"}),
        ),
        (
            known.OverLimit,
            "OverLimit",
            lambda: sqs.add_permission(
                QueueUrl=url, Label="a", AWSAccountIds=[ACCOUNT], Actions=["SendMessage", "ReceiveMessage"] * 4
            ),
        ),
        (
            known.ResourceNotFoundException,
            "ResourceNotFoundException",
            lambda: sqs.list_message_move_tasks(SourceArn=f"{arn}x"),
        ),
        (ClientError, "InvalidParameterValue", lambda: sqs.list_message_move_tasks(SourceArn=name)),
        (ClientError, "InvalidParameterValue", lambda: sqs.start_message_move_task(SourceArn=arn)),
        (ClientError, "InvalidParameterValue", lambda: sqs.cancel_message_move_task(TaskHandle="foobared")),
        (ClientError, "InvalidParameterValue", lambda: sqs.tag_queue(QueueUrl=url, Tags={"aws:a": "b"})),
        (ClientError, "InvalidParameterValue", lambda: sqs.list_queues(MaxResults=1001)),
    ):
        with pytest.raises(kind) as refused:
            ask()
        assert refused.value.response["Error"]["Code"] == code


def test_every_action_on_messages(sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue(VisibilityTimeout="600")
    sent = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[{"Id": str(n), "MessageBody": f"message {n}"} for n in range(9)]
        + [{"Id": "late", "MessageBody": "late", "DelaySeconds": 600}],
    )
    assert len(sent["Successful"]) == 10
    got = receive(sqs, url, 9, AttributeNames=["All"])
    assert {message["Body"] for message in got} == {f"message {n}" for n in range(9)}
    assert {message["Attributes"]["ApproximateReceiveCount"] for message in got} == {"1"}
    assert {message["Attributes"]["SenderId"] for message in got} == {KEY}
    until(lambda: (count(sqs, url), count(sqs, url, "NotVisible"), count(sqs, url, "Delayed")), (0, 9, 1))
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = receive(sqs, url, 1, AttributeNames=["ApproximateReceiveCount"])
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == (got[0]["Body"], "2")
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[
            {"Id": "a", "ReceiptHandle": again["ReceiptHandle"], "VisibilityTimeout": 300},
            {"Id": "b", "ReceiptHandle": got[1]["ReceiptHandle"], "VisibilityTimeout": 0},
            {"Id": "c", "ReceiptHandle": "rubbish", "VisibilityTimeout": 0},
        ],
    )
    assert {entry["Id"] for entry in changed["Successful"]} == {"a", "b"}
    assert [entry["Code"] for entry in changed["Failed"]] == ["ReceiptHandleIsInvalid"]
    (again,) = receive(sqs, url, 1)
    assert again["Body"] == got[1]["Body"]
    deleted = sqs.delete_message_batch(
        QueueUrl=url,
        Entries=[{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(got)],
    )
    assert len(deleted["Successful"]) == 9
    until(lambda: (count(sqs, url), count(sqs, url, "NotVisible"), count(sqs, url, "Delayed")), (0, 0, 1))
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="rubbish")


def test_a_long_poll_wakes_at_once(sqs: Any, served: BrokerProcess, new_queue: Callable[..., str]) -> None:
    url = new_queue(ReceiveMessageWaitTimeSeconds="20")
    got: list[Any] = []
    other = client_of(served)

    def poll() -> None:
        got.append((other.receive_message(QueueUrl=url)["Messages"][0]["Body"], time.monotonic()))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        time.sleep(0.3)  # so that it is likely to wait already; it is right either way
        sent_s = time.monotonic()
        sqs.send_message(QueueUrl=url, MessageBody="wake up")
        thread.join(WAIT_S)
        ((body, got_s),) = got
        assert body == "wake up"
        assert got_s - sent_s < 15
    finally:
        thread.join(WAIT_S)
        other.close()


def test_a_client_that_goes_away_takes_no_message_with_it(plain: BrokerProcess) -> None:
    sqs = client_of(plain)
    url = sqs.create_queue(QueueName="left", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    host, _, port = plain.http_url.removeprefix("http://").partition(":")
    form = urlencode({"Action": "ReceiveMessage", "WaitTimeSeconds": 20, "QueueUrl": url}).encode()
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host.encode(), len(form)) + form)
        own_port = raw.getsockname()[1]
        assert _has_connection(int(port), own_port)
        time.sleep(0.5)  # so that it is likely to wait already; it is right either way
    give_up_at_s = time.monotonic() + WAIT_S
    while _has_connection(int(port), own_port):
        assert time.monotonic() < give_up_at_s
        time.sleep(0.01)
    sqs.send_message(QueueUrl=url, MessageBody="for somebody else")
    assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0]["Body"] == "for somebody else"
    sqs.close()


def _has_connection(port: int, peer_port: int) -> bool:
    """Whether whoever listens on a port of 127.0.0.1 still has a connection from another one."""
    ends = tuple(f"0100007F:{one:04X}" for one in (port, peer_port))
    return any(tuple(line.split()[1:3]) == ends for line in Path("/proc/net/tcp").read_text().splitlines())


def test_fifo(sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue(".fifo", ContentBasedDeduplication="true")
    first = sqs.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="a")
    twice = sqs.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="a")
    assert (twice["MessageId"], twice["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    second = sqs.send_message(QueueUrl=url, MessageBody="one", MessageGroupId="a", MessageDeduplicationId="other")
    assert second["SequenceNumber"] > first["SequenceNumber"]
    sqs.send_message(QueueUrl=url, MessageBody="elsewhere", MessageGroupId="b")
    (one,) = sqs.receive_message(QueueUrl=url, AttributeNames=["All"], WaitTimeSeconds=20)["Messages"]
    assert one["MessageId"] == first["MessageId"]
    assert one["Attributes"]["MessageGroupId"] == "a"
    assert one["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"one").hexdigest()
    # While one of its messages is in flight, a group has nothing for anybody else.
    (other,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)["Messages"]
    assert other["Body"] == "elsewhere"
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    (next_one,) = sqs.receive_message(
        QueueUrl=url, AttributeNames=["All"], WaitTimeSeconds=20, ReceiveRequestAttemptId="try"
    )["Messages"]
    assert next_one["MessageId"] == second["MessageId"]
    (same,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20, ReceiveRequestAttemptId="try")["Messages"]
    assert same["MessageId"] == second["MessageId"]


def test_dead_letters_and_back(sqs: Any, new_queue: Callable[..., str]) -> None:
    dead = new_queue()
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 2})
    url = new_queue(VisibilityTimeout="0", RedrivePolicy=policy)
    sent = sqs.send_message(
        QueueUrl=url, MessageBody="poison", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}}
    )
    for attempt in ("1", "2"):
        (got,) = receive(sqs, url, 1, AttributeNames=["ApproximateReceiveCount"])
        assert got["Attributes"]["ApproximateReceiveCount"] == attempt
    (letter,) = receive(sqs, dead, 1, AttributeNames=["All"], MessageAttributeNames=["All"], VisibilityTimeout=0)
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "poison")
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    assert letter["MessageAttributes"]["n"]["StringValue"] == "1"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "600"})
    started = sqs.start_message_move_task(SourceArn=arn_of(sqs, dead), MaxNumberOfMessagesPerSecond=100)
    assert started["TaskHandle"]
    (back,) = receive(sqs, url, 1)
    assert back["Body"] == "poison"

    def latest() -> Any:
        (task,) = sqs.list_message_move_tasks(SourceArn=arn_of(sqs, dead))["Results"]
        return task["Status"], task["ApproximateNumberOfMessagesMoved"]

    until(latest, ("COMPLETED", 1))
    with pytest.raises(ClientError, match=r"Only active tasks can be cancelled\."):
        sqs.cancel_message_move_task(TaskHandle=started["TaskHandle"])


def test_a_move_is_cancelled(sqs: Any, new_queue: Callable[..., str]) -> None:
    dead, target = new_queue(), new_queue()
    arn = arn_of(sqs, dead)
    new_queue(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    for start in range(0, 50, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=dead, Entries=entries)
    handle = sqs.start_message_move_task(
        SourceArn=arn, DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=1
    )["TaskHandle"]
    with pytest.raises(ClientError, match="There is already a task running"):
        sqs.start_message_move_task(SourceArn=arn)
    assert sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"] < 50
    until(lambda: sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"], "CANCELLED")


def test_messages_outlive_the_broker(plain: BrokerProcess) -> None:
    sqs = client_of(plain)
    url = sqs.create_queue(QueueName="kept", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    for n in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(n))
    first = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    leased = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    plain.restart(kill=True)
    left = receive(sqs, url, 5 - len(first) - len(leased))
    bodies = [message["Body"] for message in (*first, *leased, *left)]
    assert sorted(bodies) == [str(n) for n in range(5)]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=leased[0]["ReceiptHandle"])

    # Who waits is answered when the broker stops.
    answers: list[Any] = []

    def wait() -> None:
        with suppress(BotoCoreError, ClientError):
            answers.append(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)  # so that it is likely to wait already
    assert plain.terminate() == 0
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    assert answers in ([None], [])
    sqs.close()
