"""What the doctor says of ports where something other than a healthy broker is."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.cli.doctor.findings import CheckStatus, Finding
from headrace.cli.doctor.run import diagnose


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is handed to `answer` and then ends, as soon as the client has heard it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    answer(connection)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1024):
                        pass
                except OSError:
                    continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def last(bootstrap: str, timeout_s: float = 60) -> Finding:
    return list(diagnose(bootstrap, timeout_s))[-1]


def test_a_port_where_nothing_listens():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    finding = last(f"127.0.0.1:{port}")
    assert finding.status is CheckStatus.PROBLEM
    assert "refuses connections" in finding.what
    assert "headrace serve" in (finding.advice or "")


def test_a_name_without_an_address():
    finding = last("no-such-host.invalid:9092")
    assert finding.status is CheckStatus.PROBLEM
    assert "has no address" in finding.what


def test_an_address_that_is_none():
    assert "without a scheme" in last("PLAINTEXT://localhost:9092").what


def test_a_web_server():
    def answer(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with server(answer) as port:
        assert "an HTTP server" in last(f"127.0.0.1:{port}").what


def test_a_web_server_that_waits_for_the_end_of_the_request():
    def answer(connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(1024)
            if not part:
                return
            received += part
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with server(answer) as port:
        assert "an HTTP server" in last(f"127.0.0.1:{port}", timeout_s=2).what


def test_a_tls_server():
    def answer(connection: socket.socket) -> None:
        # Without a certificate every handshake ends in an alert, which is all that the doctor needs to see.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with context.wrap_socket(connection, server_side=True):
            pass

    with server(answer) as port:
        finding = last(f"127.0.0.1:{port}")
    assert "a TLS server" in finding.what
    assert "encrypted" in (finding.advice or "")


@pytest.mark.parametrize("noise", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00\x00\x00\x05abcde", b"\xff" * 64])
def test_another_protocol(noise):
    def answer(connection: socket.socket) -> None:
        connection.sendall(noise)
        connection.recv(1024)

    with server(answer) as port:
        assert "not a Kafka broker but something else" in last(f"127.0.0.1:{port}").what


def test_a_port_that_accepts_and_hangs_up():
    with server(lambda connection: None) as port:
        assert "says nothing" in last(f"127.0.0.1:{port}").what
