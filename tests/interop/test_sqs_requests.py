"""Signatures of SQS requests, signed URLs, and the older (query) protocol, against a real broker process."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from headrace.testing.process import BrokerProcess

from .sqs_brokers import (  # noqa: F401
    KEY,
    SECRET,
    WAIT_S,
    client_of,
    new_queue,
    plain,
    plain_process,
    served,
    sqs,
)

pytestmark = pytest.mark.xdist_group("sqs-boto3")


def test_who_does_not_sign_well_gets_nothing(served: BrokerProcess) -> None:
    for key, secret, code in ((KEY, "wrong", "SignatureDoesNotMatch"), ("nobody", "x", "InvalidClientTokenId")):
        client = client_of(served, key, secret)
        with pytest.raises(ClientError) as caught:
            client.list_queues()
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        client.close()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{served.http_url}/?Action=ListQueues", timeout=WAIT_S)
    with refused.value as answer:
        assert answer.code == 403
        assert b"MissingAuthenticationToken" in answer.read()


def test_a_signed_url(served: BrokerProcess, sqs: Any, new_queue: Callable[..., str]) -> None:
    url = new_queue()
    sqs.send_message(QueueUrl=url, MessageBody="by a link")
    request = AWSRequest("GET", f"{url}?{urlencode({'Action': 'ReceiveMessage', 'WaitTimeSeconds': 20})}")
    SigV4QueryAuth(Credentials(KEY, SECRET), "sqs", "eu-central-1", expires=300).add_auth(request)
    with urllib.request.urlopen(request.url, timeout=WAIT_S) as answer:
        assert b"<Body>by a link</Body>" in answer.read()


def test_the_older_protocol(plain: BrokerProcess) -> None:
    """By raw requests, without credentials."""

    def call(action: str, url: str = plain.http_url, **fields: object) -> ElementTree.Element:
        form = urlencode({"Action": action, "Version": "2012-11-05", **fields}).encode()
        try:
            with urllib.request.urlopen(url, form, timeout=WAIT_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
        return ElementTree.fromstring(text.replace(b' xmlns="http://queue.amazonaws.com/doc/2012-11-05/"', b""))

    made = call(
        "CreateQueue", QueueName="MyQueue", **{"Attribute.1.Name": "VisibilityTimeout", "Attribute.1.Value": "40"}
    )
    url = made.findtext("CreateQueueResult/QueueUrl") or ""
    assert url == f"{plain.http_url}/000000000000/MyQueue"
    sent = call("SendMessage", url, MessageBody="This is a test message <&>")
    entries = {}
    for n in (1, 2):
        entries[f"SendMessageBatchRequestEntry.{n}.Id"] = f"test_msg_00{n}"
        entries[f"SendMessageBatchRequestEntry.{n}.MessageBody"] = f"test message body {n}"
    batch = call("SendMessageBatch", url, **entries)
    assert len(batch.findall("SendMessageBatchResult/SendMessageBatchResultEntry")) == 2
    found: dict[str | None, ElementTree.Element] = {}
    end = time.monotonic() + WAIT_S
    while len(found) < 3 and time.monotonic() < end:
        got = call("ReceiveMessage", url, MaxNumberOfMessages=10, WaitTimeSeconds=2, **{"AttributeName.1": "All"})
        found |= {each.findtext("Body"): each for each in got.findall("ReceiveMessageResult/Message")}
    message = found["This is a test message <&>"]
    assert message.findtext("MessageId") == sent.findtext("SendMessageResult/MessageId")
    assert message.findtext("MD5OfBody") == sent.findtext("SendMessageResult/MD5OfMessageBody")
    handle = message.findtext("ReceiptHandle")
    assert call("ChangeMessageVisibility", url, ReceiptHandle=handle, VisibilityTimeout=60).tag == (
        "ChangeMessageVisibilityResponse"
    )
    assert call("DeleteMessage", url, ReceiptHandle=handle).tag == "DeleteMessageResponse"
    shown = call("GetQueueAttributes", url, **{"AttributeName.1": "VisibilityTimeout"})
    assert shown.findtext("GetQueueAttributesResult/Attribute/Value") == "40"
    assert url in [each.text for each in call("ListQueues").findall("ListQueuesResult/QueueUrl")]
    missing = call("GetQueueUrl", QueueName="none")
    assert missing.findtext("Error/Code") == "AWS.SimpleQueueService.NonExistentQueue"
    assert call("DeleteQueue", url).tag == "DeleteQueueResponse"
    again = call("CreateQueue", QueueName="MyQueue")
    assert again.findtext("Error/Code") == "AWS.SimpleQueueService.QueueDeletedRecently"
