"""Messages that fail again and again keep no other from being received: through boto3 and the SDK, as users meet it."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from headrace import Client, QueueMessage, Retry
from headrace.testing.process import BrokerProcess

from .subject import SELDOM

WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM) as running:
        yield running


@pytest.fixture(scope="module")
def sqs(broker: BrokerProcess) -> Iterator[Any]:
    client = boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="eu-central-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    yield client
    client.close()


def new_queue(sqs: Any, *, is_fifo: bool = False, **attributes: str) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    if is_fifo:
        name, attributes = f"{name}.fifo", attributes | {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def send(sqs: Any, url: str, *bodies: str) -> None:
    """Each is a group of its own in a fifo queue."""
    for body in bodies:
        group = {"MessageGroupId": body.replace(" ", "-")} if url.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=url, MessageBody=body, **group)


def receive_one(sqs: Any, url: str) -> Any:
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    return message


def give_back(sqs: Any, url: str, message: Any) -> None:
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)


def delete(sqs: Any, url: str, message: Any) -> None:
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.parametrize("is_fifo", [False, True])
def test_a_poison_message_that_is_given_back_at_once(sqs: Any, is_fifo: bool) -> None:
    url = new_queue(sqs, is_fifo=is_fifo)
    good = [f"good {number}" for number in range(10)]
    send(sqs, url, "poison", *good)
    received = []
    for _ in range(20):
        message = receive_one(sqs, url)
        received.append(message["Body"])
        give_back(sqs, url, message) if message["Body"] == "poison" else delete(sqs, url, message)
    assert received[:11] == ["poison", *good]
    assert set(received[11:]) == {"poison"}


@pytest.mark.parametrize("is_fifo", [False, True])
def test_poison_messages_whose_leases_end(sqs: Any, is_fifo: bool) -> None:
    """Each lease ends while its worker is busy with the other messages."""
    url = new_queue(sqs, is_fifo=is_fifo, VisibilityTimeout="1")
    poison, good = [f"poison {number}" for number in range(3)], [f"good {number}" for number in range(10)]
    send(sqs, url, *poison, *good)
    for body in poison:
        assert receive_one(sqs, url)["Body"] == body
    give_up_at_s = time.monotonic() + WAIT_S
    while _visible(sqs, url) < 13:
        assert time.monotonic() < give_up_at_s
        time.sleep(0.05)
    for body in good:
        message = receive_one(sqs, url)
        assert message["Body"] == body
        delete(sqs, url, message)
    assert receive_one(sqs, url)["Body"] in poison


def _visible(sqs: Any, url: str) -> int:
    name = "ApproximateNumberOfMessages"
    return int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])


def test_a_group_gives_what_is_before_its_first_message_in_flight(sqs: Any) -> None:
    url = new_queue(sqs, is_fifo=True)
    for body in ("a1", "a2", "a3"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="a")
    first, second = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=2)["Messages"]
    give_back(sqs, url, first)
    first = receive_one(sqs, url)
    assert first["Body"] == "a1"
    delete(sqs, url, first)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    delete(sqs, url, second)
    assert receive_one(sqs, url)["Body"] == "a3"


def test_visibility_changes_after_its_timeout_until_somebody_else_has_the_message(sqs: Any) -> None:
    url = new_queue(sqs, VisibilityTimeout="0")
    send(sqs, url, "one")
    change = {"QueueUrl": url, "ReceiptHandle": receive_one(sqs, url)["ReceiptHandle"], "VisibilityTimeout": 20}
    assert _visible(sqs, url) == 1
    sqs.change_message_visibility(**change)
    assert _visible(sqs, url) == 0
    sqs.change_message_visibility(**change | {"VisibilityTimeout": 0})
    message = receive_one(sqs, url)
    delete(sqs, url, message)
    with pytest.raises(ClientError, match="not available for visibility timeout change") as refused:
        sqs.change_message_visibility(**change)
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_a_purge_forgets_what_would_be_a_duplicate(sqs: Any) -> None:
    url = new_queue(sqs, is_fifo=True)
    send(sqs, url, "again")
    sqs.purge_queue(QueueUrl=url)
    send(sqs, url, "again")
    assert receive_one(sqs, url)["Body"] == "again"


def test_a_worker_that_asks_for_retries_at_once(broker: BrokerProcess) -> None:
    with Client(broker.bootstrap) as client:
        queue = client.queue(f"q-{uuid.uuid4().hex[:8]}").create()
        queue.send_many(["poison", *(f"good {number}" for number in range(20))])
        handled: list[str] = []
        all_good = threading.Event()

        @queue.worker(concurrency=1)
        def work(message: QueueMessage) -> None:
            handled.append(message.text)
            if message.text == "poison":
                raise Retry("never", delay=0)
            if sum(text != "poison" for text in handled) == 20:
                all_good.set()

        runner = threading.Thread(target=client.run)
        runner.start()
        try:
            assert all_good.wait(WAIT_S), handled
        finally:
            client.stop()
            runner.join(WAIT_S)
        # A worker asks for several at a time, so the poison message may come once with each of its asks.
        assert handled.count("poison") <= 21


def test_a_receive_that_waits_is_not_refused_because_of_the_limit_in_flight(sqs: Any, broker: BrokerProcess) -> None:
    with Client(broker.bootstrap) as client:
        name = f"q-{uuid.uuid4().hex[:8]}"
        client.queue(name).create(max_in_flight=1)
    url = str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    send(sqs, url, "first", "second")
    first = receive_one(sqs, url)
    with pytest.raises(sqs.exceptions.OverLimit):
        sqs.receive_message(QueueUrl=url)
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(receive_one(sqs, url)["Body"]))
    waiting.start()
    delete(sqs, url, first)
    waiting.join(WAIT_S)
    assert found == ["second"]
