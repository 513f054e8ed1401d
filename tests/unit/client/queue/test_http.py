"""Answers over HTTP as brokers, proxies and others give them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from headrace.client.errors import ClientError
from headrace.client.queue.http import HttpClientConnection, InvalidResponse

_BOUND_S = 60.0


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[HttpClientConnection, list[bytes]]]:
    """A connection to a server that gives these answers, one to each request, and hangs up."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as peer, peer.makefile("rb") as requests:
                for answer in answers:
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += requests.readline()
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    heard.append(head + requests.read(length))
                    peer.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with closing(HttpClientConnection(f"http://127.0.0.1:{server.getsockname()[1]}")) as connection:
            yield connection, heard
        thread.join(_BOUND_S)


def test_one_request_after_the_other() -> None:
    answers = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad\r\ncontent-length:0\r\nX: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    )
    with answering(*answers) as (connection, heard):
        assert not connection.is_open
        assert connection.post({"Host": connection.host}, b"one", _BOUND_S) == (200, b"abc")
        assert connection.is_open
        assert connection.post({}, b"", _BOUND_S) == (400, b"")
        assert connection.post({}, b"", _BOUND_S) == (200, b"abcde")
        assert connection.post({}, b"", _BOUND_S) == (200, b"x")
        assert not connection.is_open
        host = connection.host.encode()
    assert heard[0] == b"POST / HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 3\r\n\r\none"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
    ],
)
def test_who_hangs_up_gave_no_answer(answer: bytes) -> None:
    with answering(answer) as (connection, _), pytest.raises(ConnectionResetError, match="closed"):
        connection.post({}, b"", _BOUND_S)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x00\x00\x10 what\r\n",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: some\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\nabc",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with answering(answer) as (connection, _), pytest.raises(InvalidResponse):
        connection.post({}, b"", _BOUND_S)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "https:///x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ClientError, match="http://HOST:PORT"):
        HttpClientConnection(url)


def test_how_a_host_is_named() -> None:
    assert HttpClientConnection("broker").host == "broker:80"
    assert HttpClientConnection("https://[::1]").host == "[::1]:443"
    assert HttpClientConnection("http://[::1]:9324").host == "[::1]:9324"
