"""Queues over HTTP on three brokers: whichever is asked answers."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import boto3
import pytest
from botocore.config import Config

from headrace.testing.cluster import ClusterProcesses
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(shutil.which("etcd") is None, reason="needs etcd"),
    pytest.mark.xdist_group("sqs-cluster"),
]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """One for each broker."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcesses(tmp_path_factory.mktemp("cluster"), brokers=3))
        yield [
            stack.enter_context(
                closing(
                    boto3.client(
                        "sqs",
                        endpoint_url=broker.http_url,
                        region_name="us-east-1",
                        aws_access_key_id="any",
                        aws_secret_access_key="any",
                        config=Config(retries={"total_max_attempts": 8, "mode": "standard"}),
                    )
                )
            )
            for broker in cluster.brokers.values()
        ]


def test_whichever_broker_is_asked_answers(clients: list[Any]) -> None:
    first, second, third = clients
    name = "work"
    url = first.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
    for client in clients:
        until(lambda client=client: "QueueUrls" in client.list_queues())  # type: ignore[misc]
    urls = [client.get_queue_url(QueueName=name)["QueueUrl"] for client in clients]
    assert urls[0] == url
    assert len(set(urls)) == 3
    for number, client in enumerate(clients):
        client.send_message(QueueUrl=urls[number], MessageBody=str(number))
    # A URL that another broker told will do, too.
    got = [client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0] for client in clients]
    assert sorted(message["Body"] for message in got) == ["0", "1", "2"]
    shown = [
        client.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
        for client in clients
    ]
    assert {each["Attributes"]["ApproximateNumberOfMessagesNotVisible"] for each in shown} == {"3"}
    for client, message in zip((second, third, first), got, strict=True):
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    second.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "0"})
    third.send_message(QueueUrl=url, MessageBody="again")
    assert first.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0]["Body"] == "again"
    third.purge_queue(QueueUrl=url)
    assert "Messages" not in second.receive_message(QueueUrl=url)
    third.delete_queue(QueueUrl=url)
    with pytest.raises(third.exceptions.QueueDeletedRecently):
        third.create_queue(QueueName=name)
    for client in clients:
        until(lambda client=client: "QueueUrls" not in client.list_queues())  # type: ignore[misc]
        with pytest.raises(client.exceptions.QueueDoesNotExist):
            client.receive_message(QueueUrl=url)
