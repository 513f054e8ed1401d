"""Applications that begin requests which have arrived in whole (`exchange.Begin`), and get the others as events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.app.http.exchange import HttpExchange, Work
from headrace.app.http.server import HttpServer
from headrace.config.broker import broker_settings
from tests.unit.app.http.serving import ANY_PORT, WAIT_S, run, until_closed

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class App:
    """Notes how it got each request, and answers with that and with the body."""

    def __init__(self) -> None:
        self.begun: list[HttpExchange] = []
        self.is_later = False
        """Whether requests that it begins are answered by the test."""
        self.has_begun = asyncio.Event()
        self.has_events = asyncio.Event()

    def begin(self, exchange: HttpExchange) -> Work | None:
        self.begun.append(exchange)
        self.has_begun.set()
        if exchange.scope["path"] == "/fails":
            raise RuntimeError("no")
        body = exchange.take_body()

        async def work() -> None:
            self.answer(exchange, b"work:" + body)

        if exchange.scope["path"] == "/work":
            return work
        if not self.is_later:
            self.answer(exchange, b"begun:" + body)
        return None

    def answer(self, exchange: HttpExchange, body: bytes) -> None:
        exchange.respond(200, b"content-type: text/plain\r\n", body)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.has_events.set()
        body = b""
        while (event := await receive()).get("more_body"):
            body += event["body"]
        body += event.get("body", b"")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"events:" + body})


def with_app(test: Callable[[App, Streams], Any], **settings: str) -> None:
    async def body() -> None:
        app = App()
        async with serving(app, **settings) as streams:
            await test(app, streams)

    run(body)


@asynccontextmanager
async def serving(app: App, **settings: str) -> AsyncIterator[Streams]:
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    server = HttpServer(broker_settings(texts), app)
    bound = await server.start(ANY_PORT, may_move=False)
    reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.stop(WAIT_S)


def post(body: bytes = b"", path: bytes = b"/", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: here\r\n%bContent-Length: %d\r\n\r\n%b" % (path, more, len(body), body)


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    return head, await reader.readexactly(length)


def test_a_request_that_has_arrived_in_whole_is_begun() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        writer.write(post(b"one", more=b"X-Request-Id: mine\r\n"))
        head, body = await read_answer(reader)
        assert body == b"begun:one"
        first, *lines = head.decode().rstrip().split("\r\n")
        assert first == "HTTP/1.1 200 OK"
        names = [line.partition(":")[0] for line in lines]
        assert names == ["date", "content-type", "content-length", "x-request-id"]
        assert lines[-1] == "x-request-id: mine"
        # The connection is kept.
        writer.write(post(b"two", b"/work"))
        assert (await read_answer(reader))[1] == b"work:two"

    with_app(test)


def test_a_request_whose_body_comes_later_has_events() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        writer.write(post(b"first, second")[:-8])
        await writer.drain()
        await app.has_events.wait()
        writer.write(b", second")
        assert (await read_answer(reader))[1] == b"events:first, second"
        assert not app.begun

    with_app(test)


def test_the_access_log_has_all_requests_as_events() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        writer.write(post(b"x"))
        assert (await read_answer(reader))[1] == b"events:x"

    with_app(test, http_access_log="true")


def test_requests_in_one_segment_are_answered_in_order() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        writer.write(b"".join(post(b"%d" % number) for number in range(100)))
        bodies = [(await read_answer(reader))[1].partition(b":")[2] for _ in range(100)]
        assert bodies == [b"%d" % number for number in range(100)]

    with_app(test)


def test_an_answer_may_come_later_and_ends_the_connection_if_it_is_asked_for() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        app.is_later = True
        writer.write(post(b"x", more=b"Connection: close\r\n"))
        await app.has_begun.wait()
        app.answer(app.begun[0], b"late")
        answer = await until_closed(reader)
        assert answer.endswith(b"\r\n\r\nlate")
        assert b"connection: close\r\n" in answer

    with_app(test)


def test_a_failure_is_an_internal_server_error() -> None:
    async def test(app: App, streams: Streams) -> None:
        reader, writer = streams
        writer.write(post(b"x", b"/fails"))
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")

    with_app(test)


def test_a_client_that_disconnects_is_noted_and_gets_no_answer() -> None:
    async def test(app: App, streams: Streams) -> None:
        app.is_later = True
        streams[1].write(post(b"x"))
        await app.has_begun.wait()
        gone = asyncio.Event()
        app.begun[0].on_disconnect = gone.set
        streams[1].close()
        await gone.wait()
        app.answer(app.begun[0], b"too late")
        assert not app.begun[0].is_complete

    with_app(test)
