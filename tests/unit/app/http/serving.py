"""An HTTP server of the broker on any port, for tests that speak to it byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router

from headrace.app.http.server import HttpServer
from headrace.config.broker import broker_settings
from headrace.model.image import Endpoint

WAIT_S = 60.0
ANY_PORT = Endpoint("127.0.0.1", 0)
HELLO = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def run(body: Callable[[], Awaitable[Any]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(body(), WAIT_S)

    # The broker's event loop.
    uvloop.run(bounded())


@asynccontextmanager
async def serving(endpoint: Any = hello, **settings: str) -> AsyncIterator[tuple[HttpServer, int]]:
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    server = HttpServer(broker_settings(texts), Router([Route("/", endpoint, methods=["GET", "POST"])]))
    bound = await server.start(ANY_PORT, may_move=False)
    try:
        yield server, bound.port
    finally:
        await server.stop(WAIT_S)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
