"""Requests of the SQS API leave no reference cycles: what a request allocated is freed with its answer.

The young generations of the garbage collector are small (`runtime/process.py`), and a collection stops the event loop.
"""

import gc
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from headrace.testing import Broker

REQUESTS = 1_000
MOST_OBJECTS = 300
"""What the broker leaves by itself meanwhile, as its timers do."""


class Connection:
    """A connection that is kept, one request at a time. It leaves no garbage of its own."""

    def __init__(self, broker: Broker) -> None:
        where = urlsplit(broker.http_url)
        self._socket = socket.create_connection((where.hostname, where.port), timeout=60)

    def ask(self, headers: str, body: str) -> tuple[int, str]:
        head = f"POST / HTTP/1.1\r\nHost: queues.test\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        self._socket.sendall((head + body).encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65_536)
        answer_head, _, answer = data.partition(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in answer_head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        while len(answer) < length:
            answer += self._socket.recv(65_536)
        return int(answer_head[9:12]), answer.decode()

    def json(self, action: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        status, text = self.ask(f"X-Amz-Target: AmazonSQS.{action}\r\n", json.dumps(fields))
        return status, json.loads(text)

    def query(self, action: str, **fields: str) -> int:
        form = urlencode({"Action": action, **fields})
        return self.ask("Content-Type: application/x-www-form-urlencoded\r\n", form)[0]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def one_by_one(connection: Connection, url: str) -> int:
    assert connection.json("SendMessage", QueueUrl=url, MessageBody="x")[0] == 200
    _, received = connection.json("ReceiveMessage", QueueUrl=url, AttributeNames=["All"])
    (message,) = received["Messages"]
    assert connection.json("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])[0] == 200
    return 3


def by_ten(connection: Connection, url: str) -> int:
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(10)]
    assert connection.json("SendMessageBatch", QueueUrl=url, Entries=entries)[0] == 200
    _, received = connection.json("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)
    entries = [{"Id": each["MessageId"], "ReceiptHandle": each["ReceiptHandle"]} for each in received["Messages"]]
    assert len(connection.json("DeleteMessageBatch", QueueUrl=url, Entries=entries)[1]["Successful"]) == 10
    return 3


def by_the_query_protocol(connection: Connection, url: str) -> int:
    assert connection.query("SendMessage", QueueUrl=url, MessageBody="x") == 200
    assert connection.query("ReceiveMessage", QueueUrl=url, VisibilityTimeout="0") == 200
    return 2


def of_an_empty_queue(connection: Connection, url: str) -> int:
    assert connection.json("ReceiveMessage", QueueUrl=url) == (200, {})
    return 1


def refused(connection: Connection, url: str) -> int:
    assert connection.json("DeleteMessage", QueueUrl=url, ReceiptHandle="another")[0] == 400
    assert connection.json("SendMessage", QueueUrl=url)[0] == 400
    assert connection.json("ReceiveMessage", QueueUrl=url + "-unknown")[0] == 400
    return 3


@pytest.mark.parametrize("work", [one_by_one, by_ten, by_the_query_protocol, of_an_empty_queue, refused])
def test_requests_leave_no_reference_cycles(broker: Broker, work: Callable[[Connection, str], int]) -> None:
    connection = Connection(broker)
    url = connection.json("CreateQueue", QueueName=work.__name__)[1]["QueueUrl"]
    for _ in range(20):
        work(connection, url)
    gc.collect()
    gc.disable()
    try:
        done = 0
        while done < REQUESTS:
            done += work(connection, url)
        assert gc.collect() < MOST_OBJECTS
    finally:
        gc.enable()
        connection.close()


def test_connections_leave_no_reference_cycles(broker: Broker) -> None:
    def one() -> None:
        connection = Connection(broker)
        assert connection.json("ListQueues")[0] == 200
        connection.close()

    for _ in range(20):
        one()
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            one()
        assert gc.collect() < MOST_OBJECTS
    finally:
        gc.enable()
