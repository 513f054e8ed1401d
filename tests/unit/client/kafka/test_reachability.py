"""The first contact with a cluster."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace import Client, Unreachable
from headrace.client.kafka.reachability import FirstContact, ask_broker, http_contact, kafka_addresses, kafka_contact

ANSWER = b"\x00\x00\x00\x0a\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00"


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A port that answers every request with these bytes, or with nothing until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as kept:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.enter_context(connection)
                    if answer is not None:
                        while connection.recv(1024):
                            connection.sendall(answer)
                        connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def nobody() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_broker_is_asked_once() -> None:
    asked: list[object] = []
    contact = FirstContact("here", [("a", 1)], lambda address, _: asked.append(address), 1.0, "")
    contact.make()
    contact.make()
    assert asked == [("a", 1)]


def test_one_of_several_addresses_is_enough() -> None:
    with listening(ANSWER) as port, listening(None) as hung:
        kafka_contact(f"127.0.0.1:{nobody()},127.0.0.1:{hung},127.0.0.1:{port}", {}, 60).make()


def test_the_error_says_which_address_what_was_tried_and_what_to_do() -> None:
    port = nobody()
    with pytest.raises(Unreachable) as caught:
        kafka_contact(f"127.0.0.1:{port}", {}, 0.2).make()
    text = str(caught.value)
    assert f"no broker answers at 127.0.0.1:{port} after 0.2 seconds (127.0.0.1:{port}: connection refused)" in text
    assert "headrace serve" in text
    assert f"headrace doctor --bootstrap 127.0.0.1:{port}" in text


def test_a_name_that_is_not_known() -> None:
    with pytest.raises(Unreachable, match=r"the host name broker\.invalid is not known"):
        kafka_contact("broker.invalid:9092", {}, 0.2).make()


def test_a_port_of_something_else_is_said_at_once() -> None:
    with (
        listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port,
        pytest.raises(Unreachable, match="does not speak the Kafka protocol"),
    ):
        kafka_contact(f"127.0.0.1:{port}", {}, 3_600).make()


def test_a_port_that_never_answers() -> None:
    with (
        listening(None) as port,
        pytest.raises(Unreachable, match=f"127.0.0.1:{port}: it accepts connections, but does not answer"),
    ):
        kafka_contact(f"127.0.0.1:{port}", {}, 0.2).make()


def test_with_tls_an_open_port_is_enough() -> None:
    with listening(None) as port:
        kafka_contact(
            "ignored:1", {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_SSL"}, 60
        ).make()


def test_a_broker_that_comes_within_the_time_is_waited_for() -> None:
    refused = threading.Event()

    def probe(address: object, timeout_s: float) -> None:
        if not refused.is_set():
            refused.set()
            raise ConnectionRefusedError

    FirstContact("here", [("a", 1)], probe, 60, "").make()
    assert refused.is_set()


def test_addresses() -> None:
    assert kafka_addresses("a:1, b ,[::1]:3,PLAINTEXT://c:4,:5,") == [("a", 1), ("b", 9092), ("::1", 3), ("c", 4)]


def test_the_address_for_queues_is_tried_too() -> None:
    port = nobody()
    with pytest.raises(Unreachable, match=rf"http://127\.0\.0\.1:{port}.*refused.*http\.listen"):
        http_contact([f"http://127.0.0.1:{port}"], 0.2).make()


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.publish("orders", "x"),
        lambda client: client.publish_soon("orders", "x"),
        lambda client: client.subscribe("orders"),
        lambda client: client.replay("orders"),
        lambda client: client.consume("orders", group="g"),
        lambda client: client.consume("orders", "g", "exactly-once"),
        lambda client: client.topics.list(),
        lambda client: client.topics.create("orders"),
        lambda client: client.queue("emails").create(),
        lambda client: client.queue("emails").send("x"),
        lambda client: client.queue("emails").receive(),
        lambda client: client.queues(),
        lambda client: client.handler("orders", group="g")(print) and client.run(),
    ],
)
def test_every_first_call_says_that_nobody_answers(
    use: Callable[[Client], object], capfd: pytest.CaptureFixture[str]
) -> None:
    port = nobody()
    with (
        Client(f"127.0.0.1:{port}", connect_timeout=0.05) as client,
        pytest.raises(Unreachable, match="connection refused"),
    ):
        use(client)
    # librdkafka writes no line about this address. A client of another test, whose broker is gone, may write its own.
    assert f":{port}" not in capfd.readouterr().err


def test_the_probe_understands_a_broker() -> None:
    with listening(ANSWER) as port:
        ask_broker(("127.0.0.1", port), 60)
