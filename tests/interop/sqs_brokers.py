"""Brokers for boto3, one that checks signatures and one without settings, and what tests do with their queues."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from headrace.testing.process import BrokerProcess

WAIT_S = 60.0
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ACCOUNT = "123456789012"


def client_of(broker: BrokerProcess, key: str = KEY, secret: str = SECRET) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="eu-central-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 5, "mode": "standard"}),
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that checks signatures."""
    settings = {
        "sqs.access.keys": f"{KEY}:{SECRET}",
        "sqs.account.id": ACCOUNT,
        "sqs.region": "eu-central-1",
        "sqs.recreate.wait.ms": 0,
    }
    with BrokerProcess(tmp_path_factory.mktemp("sqs") / "data", settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("plain") / "data") as broker:
        yield broker


@pytest.fixture
def plain(plain_process: BrokerProcess) -> BrokerProcess:
    """A broker as it is without settings: nobody but this machine reaches it, by any credentials or none. A test may
    stop it; it runs again for the next one."""
    return plain_process if plain_process.is_running else plain_process.start()


@pytest.fixture(scope="module")
def sqs(served: BrokerProcess) -> Iterator[Any]:
    client = client_of(served)
    yield client
    client.close()


@pytest.fixture
def new_queue(sqs: Any) -> Callable[..., str]:
    def make(suffix: str = "", **attributes: str) -> str:
        if suffix == ".fifo":
            attributes["FifoQueue"] = "true"
        made = sqs.create_queue(QueueName=f"q-{uuid.uuid4().hex[:12]}{suffix}", Attributes=attributes)
        return str(made["QueueUrl"])

    return make


def arn_of(sqs: Any, url: str) -> str:
    return str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def receive(sqs: Any, url: str, count: int, **more: Any) -> list[dict[str, Any]]:
    """Receive until there are so many."""
    found: list[dict[str, Any]] = []
    end = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages"
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2, **more)
        found += answer.get("Messages", [])
    return found


def until(look: Callable[[], Any], expected: Any) -> None:
    end = time.monotonic() + WAIT_S
    while (found := look()) != expected:
        assert time.monotonic() < end, f"{found} is not {expected}"
        time.sleep(0.05)


def count(sqs: Any, url: str, which: str = "") -> int:
    name = f"ApproximateNumberOfMessages{which}"
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])
