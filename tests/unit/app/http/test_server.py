"""The HTTP server's bounds: heads, connections, silence, and how it stops."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Router

from headrace.app.http.server import HttpServer
from headrace.config.broker import broker_settings
from headrace.model.errors import StartupError
from headrace.model.image import Endpoint
from tests.unit.app.http.serving import ANY_PORT, HELLO, WAIT_S, run, serving, until_closed


def test_a_head_without_end_is_refused() -> None:
    async def body() -> None:
        async with serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(200)))
            # What was sent and is not read any more may turn the answer into a reset.
            assert b"200 OK" not in await until_closed(reader)
            writer.close()
            other = await asyncio.open_connection("127.0.0.1", port)
            other[1].write(HELLO)
            assert b"200 OK" in await other[0].readuntil(b"hello")
            other[1].close()

    run(body)


def test_connections_past_the_limit_are_closed() -> None:
    async def body() -> None:
        async with serving(max_connections="2") as (_, port):
            kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for reader, writer in kept:
                writer.write(HELLO)
                await reader.readuntil(b"hello")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await until_closed(reader) == b""
            for _, each in (*kept, (reader, writer)):
                each.close()

    run(body)


@pytest.mark.parametrize("sent", [b"GET / HT", b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\nhalf"])
def test_half_a_request_is_not_waited_for_for_ever(sent: bytes) -> None:
    async def read(request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    async def body() -> None:
        async with serving(read, request_read_timeout_ms="1000") as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            await until_closed(reader)
            writer.close()

    run(body)


def test_a_silent_connection_is_closed() -> None:
    async def body() -> None:
        async with serving(connections_max_idle_ms="1000") as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await until_closed(reader) == b""
            writer.close()

    run(body)


def test_stopping_answers_what_is_under_way_and_takes_nothing_new() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> PlainTextResponse:
        asked.set()
        await may_answer.wait()
        return PlainTextResponse("late")

    async def body() -> None:
        async with serving(slow) as (server, port):
            idle = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            await asked.wait()
            stopping = asyncio.ensure_future(server.stop(WAIT_S))
            assert await until_closed(idle[0]) == b""
            with pytest.raises(OSError, match=r"refused|reset|Connect call failed"):
                await asyncio.open_connection("127.0.0.1", port)
            may_answer.set()
            answer = await until_closed(reader)
            assert b"connection: close" in answer
            assert answer.endswith(b"late")
            await stopping
            assert server.connection_count == 0
            for each in (idle[1], writer):
                each.close()

    run(body)


def test_stopping_does_not_wait_longer_than_told() -> None:
    asked = asyncio.Event()

    async def stuck(request: Request) -> PlainTextResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def body() -> None:
        async with serving(stuck) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            await asked.wait()
            await server.stop(0.1)
            assert server.connection_count == 0
            writer.close()

    run(body)


def test_a_port_that_is_taken() -> None:
    async def body() -> None:
        async with serving() as (_, port):
            other = HttpServer(broker_settings({}), Router())
            with pytest.raises(StartupError, match="another program uses this port"):
                await other.start(Endpoint("127.0.0.1", port), may_move=False)
            moved = await other.start(Endpoint("127.0.0.1", port), may_move=True)
            assert moved.port not in (0, port)
            await other.stop(WAIT_S)

    run(body)


def test_a_head_that_trickles_in_has_a_limit_in_total() -> None:
    """Each byte comes in time, the blank line does not."""

    async def body() -> None:
        async with serving(request_read_timeout_ms="1000") as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            ended = asyncio.ensure_future(until_closed(reader))
            while not ended.done():
                writer.write(b"x")
                await asyncio.wait((ended,), timeout=0.2)
            assert await ended == b""
            writer.close()

    run(body)


def test_a_client_that_does_not_read_its_response_is_disconnected() -> None:
    gone = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        left = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not left.done():
            await send({"type": "http.response.body", "body": bytes(1_000_000), "more_body": True})
        assert (await left)["type"] == "http.disconnect"
        gone.set()

    async def body() -> None:
        server = HttpServer(broker_settings({"request.read.timeout.ms": "1000"}), endless)
        bound = await server.start(ANY_PORT, may_move=False)
        _, writer = await asyncio.open_connection("127.0.0.1", bound.port, limit=1)
        writer.write(HELLO)
        await gone.wait()
        writer.close()
        await server.stop(WAIT_S)

    run(body)


def test_a_response_that_goes_on_outlives_the_idle_limit() -> None:
    """Server-sent events: the connection is silent for longer than an idle one may be."""
    may_end = asyncio.Event()

    async def events(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await may_end.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async def body() -> None:
        server = HttpServer(broker_settings({"connections.max.idle.ms": "1000"}), events)
        bound = await server.start(ANY_PORT, may_move=False)
        idle = await asyncio.open_connection("127.0.0.1", bound.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", bound.port)
        writer.write(HELLO)
        await reader.readuntil(b"first\r\n")
        assert await until_closed(idle[0]) == b""
        may_end.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"4\r\nlast\r\n0\r\n\r\n"
        for each in (idle[1], writer):
            each.close()
        await server.stop(WAIT_S)

    run(body)
