"""Requests and responses of the HTTP server: one after the other, in pieces, malformed, and the access log."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Router

from headrace.app.http.connection import HttpServerConnection, HttpServerState
from headrace.app.http.server import HttpServer
from headrace.config.broker import broker_settings
from tests.unit.app.http.serving import ANY_PORT, HELLO, WAIT_S, hello, run, serving, until_closed


def test_requests_one_after_the_other_on_one_connection() -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(3):
                writer.write(HELLO)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"date: " in head
                assert await reader.readexactly(5) == b"hello"
            writer.close()

    run(body)


def request_ids(received: bytes) -> list[bytes]:
    return re.findall(rb"\r\nx-request-id: (\S+)\r\n", received)


@pytest.mark.parametrize("given", [b"", b"from the proxy", b"x" * 65, b"\xff"])
def test_each_response_has_a_request_id_of_its_own(given: bytes) -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for close in (b"", b"connection: close\r\n"):
                writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nx-request-id: %b\r\n%b\r\n" % (given, close))
            first, second = request_ids(await until_closed(reader))
            assert len({first, second, given}) == 3
            writer.close()

    run(body)


def test_a_request_keeps_the_id_that_a_proxy_gave_it() -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nX-Request-Id: a-1:b_2.c\r\nconnection: close\r\n\r\n")
            assert request_ids(await until_closed(reader)) == [b"a-1:b_2.c"]
            writer.close()

    run(body)


def test_bytes_that_are_no_request_are_refused_with_an_id() -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"nonsense\r\n\r\n")
            assert len(request_ids(await until_closed(reader))) == 1
            writer.close()

    run(body)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_access_log_has_a_line_for_each_request(is_on: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(request: Request) -> PlainTextResponse:
        raise ValueError("on purpose")

    async def body() -> None:
        for endpoint in (hello, failing):
            async with serving(endpoint, http_access_log=str(is_on).lower()) as (_, port):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /?X-Amz-Signature=secret HTTP/1.1\r\nHost: h\r\nconnection: close\r\n\r\n")
                (request_id,) = request_ids(await until_closed(reader))
                ids.append(request_id.decode())
                writer.close()

    ids: list[str] = []
    caplog.set_level(logging.INFO, "headrace")
    logging.getLogger("headrace").addHandler(caplog.handler)
    try:
        run(body)
    finally:
        logging.getLogger("headrace").removeHandler(caplog.handler)
    lines = {record.getMessage(): record for record in caplog.records if record.name.endswith("access_log")}
    shown = [re.sub(r"[\d.]+ ms", "T ms", line) for line in lines]
    assert shown == (
        ["GET / 200 5 bytes T ms from 127.0.0.1", "GET / 500 21 bytes T ms from 127.0.0.1"] if is_on else []
    )
    assert [getattr(record, "request").request_id for record in lines.values()] == (ids if is_on else [])  # noqa: B009
    assert "secret" not in caplog.text


async def raw(scope: Any, receive: Any, send: Any) -> None:
    """Answers as its path says."""
    event = await receive()
    start: dict[str, Any] = {"type": "http.response.start", "status": 200}
    match scope["path"]:
        case "/whole":
            body = event["body"]
            await send({**start, "headers": [(b"content-length", b"%d" % len(body))]})
            await send({"type": "http.response.body", "body": body})
        case "/closing":
            await send({**start, "headers": [(b"content-length", b"2"), (b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b"ok"})
        case "/pieces":
            await send({**start, "headers": []})
            for piece in (b"one", b"two"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        case "/two-lines":
            await send({**start, "headers": [(b"content-length", b"2"), (b"x", b"1\r\ny: 2")]})
            await send({"type": "http.response.body", "body": b"ok"})
        case _:
            await send({**start, "headers": [(b"content-length", b"2")]})
            raise ValueError(scope["path"])


@asynccontextmanager
async def asked(request: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server of `raw` on which a request was sent."""
    server = HttpServer(broker_settings({}), Router(default=raw, redirect_slashes=False))
    bound = await server.start(ANY_PORT, may_move=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
    try:
        writer.write(request)
        yield reader, writer
    finally:
        writer.close()
        await server.stop(WAIT_S)


def request(path: bytes, method: bytes = b"POST", more: bytes = b"") -> bytes:
    return b"%b %b HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n%b\r\nbody" % (method, path, more)


def test_answers_of_requests_that_were_sent_together() -> None:
    async def body() -> None:
        async with asked(request(b"/whole") * 3) as (reader, _):
            for _ in range(3):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.lower().count(b"content-length: 4\r\n") == 1
                assert await reader.readexactly(4) == b"body"

    run(body)


def test_an_answer_in_pieces() -> None:
    async def body() -> None:
        async with asked(request(b"/pieces")) as (reader, _):
            assert b"transfer-encoding: chunked" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readuntil(b"0\r\n\r\n") == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"

    run(body)


@pytest.mark.parametrize("sent", [request(b"/closing"), request(b"/whole", more=b"Connection: close\r\n")])
def test_an_answer_after_which_the_connection_ends(sent: bytes) -> None:
    async def body() -> None:
        async with asked(sent) as (reader, _):
            answer = await until_closed(reader)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.count(b"connection: close\r\n") == 1

    run(body)


def test_an_answer_to_head_has_no_body() -> None:
    async def body() -> None:
        async with asked(request(b"/whole", b"HEAD") + request(b"/closing")) as (reader, _):
            first, second, end = (await until_closed(reader)).split(b"\r\n\r\n")
            assert b"content-length: 4" in first
            assert second.startswith(b"HTTP/1.1 200 OK")
            assert end == b"ok"

    run(body)


@pytest.mark.parametrize("path", [b"/two-lines", b"/fails"])
def test_an_answer_that_cannot_be_given(path: bytes) -> None:
    """Neither a head without its body, nor a header that is two."""

    async def body() -> None:
        async with asked(request(path)) as (reader, _):
            assert b"200 OK" not in await until_closed(reader)

    run(body)


def test_a_body_that_waits_to_be_asked_for() -> None:
    async def body() -> None:
        head = request(b"/whole", more=b"Expect: 100-continue\r\n").removesuffix(b"body")
        async with asked(head) as (reader, writer):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"body"

    run(body)


@pytest.mark.parametrize(
    "sent", [b"\x00\x01\x02 nonsense", b"GET / HTTP/9.9\r\n\r\n", b"CONNECT here:80 HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert b"400 Bad Request" in await until_closed(reader)
            writer.close()

    run(body)


class Pieces(asyncio.Transport):
    """A transport of a connection that is given each piece as the test wishes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...


@pytest.mark.parametrize("offer", [b"", b"connection: upgrade\r\nupgrade: h2c\r\n"])
@pytest.mark.parametrize("first", [30_000, 200_000])
def test_a_head_has_a_bound_however_it_arrives(first: int, offer: bytes) -> None:
    async def refuse_to_be_asked(*_: Any) -> None:
        raise AssertionError

    async def body() -> None:
        connection = HttpServerConnection(HttpServerState(refuse_to_be_asked, 100))
        connection.connection_made(transport := Pieces())
        head = b"GET / HTTP/1.1\r\nhost: a\r\n" + offer + b"x: " + b"a" * 200_000 + b"\r\n\r\n"
        for piece in (head[:first], head[first:-4], head[-4:]):
            connection.data_received(piece)
        assert transport.written.startswith(b"HTTP/1.1 400 ")

    run(body)


def test_an_offer_to_upgrade_is_ignored() -> None:
    async def body() -> None:
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        async with asked(request(b"/whole", more=offer) * 2) as (reader, writer):
            for _ in range(2):
                assert b"HTTP/1.1 200 OK" in await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(4) == b"body"
            writer.write(request(b"/whole"))
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(4) == b"body"

    run(body)


def test_a_request_before_nonsense_is_answered() -> None:
    async def body() -> None:
        async with asked(request(b"/whole") + b"\x00nonsense") as (reader, _):
            answer = await until_closed(reader)
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"\r\n\r\nbody")

    run(body)


def test_a_body_that_breaks_off_in_nonsense_is_refused() -> None:
    async def body() -> None:
        head = b"POST /whole HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with asked(head + b"4\r\nbody\r\nnonsense\r\n") as (reader, _):
            assert b"200 OK" not in (answer := await until_closed(reader))
            assert answer.count(b"HTTP/1.1") == 1

    run(body)


@pytest.mark.parametrize("path", [b"/too-short", b"/too-long", b"/nothing"])
def test_a_response_that_is_not_as_long_as_it_says(path: bytes) -> None:
    async def wrong(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/nothing":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            body = b"abc" if scope["path"] == "/too-short" else b"abcde"
            await send({"type": "http.response.body", "body": body})

    async def body() -> None:
        server = HttpServer(broker_settings({}), wrong)
        bound = await server.start(ANY_PORT, may_move=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
        writer.write(b"GET %b HTTP/1.1\r\nHost: here\r\n\r\n" % path)
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        writer.close()
        await server.stop(WAIT_S)

    run(body)


def test_a_large_body_is_read_as_fast_as_the_application_takes_it() -> None:
    sizes: list[int] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        while (event := await receive()).get("more_body"):
            sizes.append(len(event["body"]))
            await asyncio.sleep(0)
        sizes.append(len(event["body"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def body() -> None:
        server = HttpServer(broker_settings({}), slow)
        bound = await server.start(ANY_PORT, may_move=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
        writer.write(b"PUT / HTTP/1.1\r\nHost: here\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 No Content\r\n")
        assert sum(sizes) == 8_000_000
        assert max(sizes) < 1_000_000
        writer.close()
        await server.stop(WAIT_S)

    run(body)
