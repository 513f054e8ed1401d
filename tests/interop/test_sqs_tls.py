"""boto3 over https, with the access key of a user."""

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, SSLError

from headrace.model.acls import AclOperation

from .secured import ACCOUNT, ADMIN, REGION, Key, SecuredBroker, secured_broker

ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:work"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker(tls=True) as broker:
        yield broker


def client(broker: SecuredBroker, key: Key, **more: Any) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.broker.http_url,
        region_name=REGION,
        aws_access_key_id=key.id,
        aws_secret_access_key=key.secret,
        config=Config(retries={"max_attempts": 0}),
        **{"verify": str(broker.broker.ca_file), **more},
    )


def denied(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 403
    return str(error["Error"]["Code"])


def test_a_user_over_tls(broker: SecuredBroker) -> None:
    bob, admin = broker.user("bob"), client(broker, ADMIN)
    url = admin.create_queue(QueueName="work")["QueueUrl"]
    assert url.startswith("https://")
    sqs = client(broker, bob)
    assert denied(sqs.send_message, QueueUrl=url, MessageBody="hello") == "AccessDenied"
    broker.allow("bob", AclOperation.WRITE, "work")
    broker.allow("bob", AclOperation.READ, "work")
    sqs.send_message(QueueUrl=url, MessageBody="hello")
    only_over_tls = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": ARN}
    only_over_tls["Condition"] = {"Bool": {"aws:SecureTransport": "false"}}  # type: ignore[assignment]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [only_over_tls]})
    admin.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
    assert message["Body"] == "hello"
    never_over_tls = policy.replace('"false"', '"true"')
    admin.set_queue_attributes(QueueUrl=url, Attributes={"Policy": never_over_tls})
    assert denied(sqs.receive_message, QueueUrl=url) == "AccessDenied"
    assert denied(client(broker, Key(bob.id, "wrong")).list_queues) == "SignatureDoesNotMatch"
    assert denied(client(broker, Key("nobody", "x")).list_queues) == "InvalidClientTokenId"


def test_a_client_that_does_not_trust_the_broker(broker: SecuredBroker) -> None:
    with pytest.raises(SSLError):
        client(broker, ADMIN, verify=True).list_queues()


def test_a_broker_stops_though_clients_keep_connections_open() -> None:
    with secured_broker(tls=True) as broker:
        sqs = client(broker, ADMIN)
        sqs.list_queues()
        started = monotonic()
        broker.broker.stop()
    assert monotonic() - started < 15
    del sqs
