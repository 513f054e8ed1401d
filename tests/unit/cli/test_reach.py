"""What is said of an address where no broker is."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.cli import reach
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.reach import check_http_reachable, check_reachable

NOBODY = "127.0.0.1:1"


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A server that sends this to whoever connects and asks something; None: it says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    ended.wait(60)

        ended = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(60)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is an HTTP server and not a Kafka broker; give the address that Kafka"),
        (b"\x15\x03\x03\x00\x02\x02\x28\x00", "expects TLS: set HEADRACE_TLS=true"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is something else than a Kafka broker"),
        (b"", "is no Kafka broker, or one that is just stopping: it ends the connection"),
    ],
)
def test_something_else_than_a_broker_is_told_at_once(answer, sentence):
    with answering(answer) as address, pytest.raises(CommandFailed, match=sentence):
        check_reachable(f"{NOBODY},{address}")


def test_a_broker_beside_addresses_where_nobody_is_will_do():
    with answering(b"\x00\x00\x00\x04head" * 2) as address:
        check_reachable(f"{NOBODY}, {address}")


def test_a_server_that_is_too_busy_to_answer_is_left_to_the_client(monkeypatch):
    monkeypatch.setattr(reach, "ANSWER_WITHIN_S", 0.2)
    with answering(None) as address:
        check_reachable(address)


def test_an_address_that_swallows_everything_ends_in_time(monkeypatch):
    """As behind a firewall, or with a DNS that does not answer."""
    never = threading.Event()

    def swallowed(*_: object) -> None:
        never.wait(60)
        raise OSError

    monkeypatch.setattr(reach, "ANSWER_WITHIN_S", 0.2)
    monkeypatch.setattr(socket, "create_connection", swallowed)
    try:
        with pytest.raises(
            CommandFailed, match=r"no broker answers at 192\.0\.2\.1:9092,192\.0\.2\.2:9092; `headrace doctor"
        ):
            check_reachable("192.0.2.1:9092,192.0.2.2:9092")
        with pytest.raises(CommandFailed, match="no broker serves queues at"):
            check_http_reachable("http://192.0.2.1:9324")
    finally:
        never.set()


@pytest.mark.parametrize("text", ["localhost:http", "http://localhost:9092", "", " , ", "localhost:99999", ":9092"])
def test_what_is_no_address_is_an_argument_that_makes_no_sense(text):
    with pytest.raises(BadArgument, match=r"HOST:PORT|port|address|localhost:9092"):
        check_reachable(text)
