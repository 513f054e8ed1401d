"""The HTTP listener of a broker: it accepts connections, enforces their limits and stops them in order.

A connection is closed when it is idle for `connections.max.idle.ms`, and after `request.read.timeout.ms` when it owes
the rest of a request or does not read its response, so that no peer that is gone holds resources. Applications read
bodies themselves, in parts and with limits of their own: a body that no application reads is not read from the socket.
"""

import asyncio
import ssl
from contextlib import suppress
from email.utils import formatdate

from headrace.app.http.connection import HttpServerConnection, HttpServerState
from headrace.app.http.exchange import AsgiApp
from headrace.config.broker import BrokerSettings
from headrace.kafka.server import why_not_listening
from headrace.model.errors import StartupError
from headrace.model.image import Endpoint

_BACKLOG = 1024
_SWEEP_EVERY_S = 1.0
_CLOSE_TIMEOUT_S = 1.0
_TLS_HANDSHAKE_TIMEOUT_S = 10.0


class HttpServer:
    """Serves an ASGI application: starlette's router, or any other callable of that interface."""

    def __init__(self, settings: BrokerSettings, app: AsgiApp, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` it serves https."""
        self._settings = settings
        self._tls = tls
        self._closed = asyncio.Event()
        """Set each time that a connection is closed."""
        self._state = HttpServerState(app, settings.max_connections, on_closed=self._closed.set)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, listen: Endpoint, *, may_move: bool) -> Endpoint:
        """Listen, and return the bound address. With `may_move` a free port replaces one that is in use."""
        self._set_date()
        try:
            server = await self._bind(listen.host, listen.port)
        except OSError as error:
            if not may_move or not listen.port:
                raise StartupError(why_not_listening(listen, error, "--http-listen")) from error
            server = await self._bind(listen.host, 0)
        self._server = server
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="http-sweeper")
        return Endpoint(listen.host, server.sockets[0].getsockname()[1])

    async def _bind(self, host: str, port: int) -> asyncio.Server:
        state = self._state
        return await asyncio.get_running_loop().create_server(
            lambda: HttpServerConnection(state),
            host or None,
            port,
            backlog=_BACKLOG,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else _TLS_HANDSHAKE_TIMEOUT_S,
            # A client that keeps its connection open, as pools do, does not answer the end of a TLS session.
            ssl_shutdown_timeout=None if self._tls is None else _CLOSE_TIMEOUT_S,
        )

    async def stop(self, timeout_s: float) -> None:
        """Accept no more requests, wait at most `timeout_s` for the responses in progress, then close."""
        state = self._state
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for connection in tuple(state.connections):
            connection.shut_down()
        await self._wait_until_closed(timeout_s)
        for task in tuple(state.tasks):
            task.cancel()
        await self._wait_until_closed(_CLOSE_TIMEOUT_S)
        for connection in tuple(state.connections):
            connection.abort()
        await self._wait_until_closed(_CLOSE_TIMEOUT_S)
        if state.tasks:
            await asyncio.wait(tuple(state.tasks), timeout=_CLOSE_TIMEOUT_S)

    async def _wait_until_closed(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._state.connections:
                    self._closed.clear()
                    await self._closed.wait()

    @property
    def connection_count(self) -> int:
        return len(self._state.connections)

    async def _sweep(self) -> None:
        stall_s = self._settings.request_read_timeout_ms / 1000
        idle_s = self._settings.connections_max_idle_ms / 1000
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            self._set_date()
            for connection in tuple(self._state.connections):
                connection.enforce_timeouts(loop.time(), stall_s=stall_s, idle_s=idle_s)

    def _set_date(self) -> None:
        self._state.date_header = (b"date", formatdate(usegmt=True).encode())
