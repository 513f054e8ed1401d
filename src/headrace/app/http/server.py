"""The HTTP listener of a broker: it accepts connections, enforces their limits and stops them in order.

A connection is closed when it is idle for `connections.max.idle.ms`, and after `request.read.timeout.ms` when it owes
the rest of a request or does not read its response, so that no peer that is gone holds resources. Applications read
bodies themselves, in parts and with limits of their own: a body that no application reads is not read from the socket.
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from email.utils import formatdate

from headrace.app.http.access_log import log_access
from headrace.app.http.connection import HttpServerConnection, HttpServerState
from headrace.app.http.exchange import AsgiApp
from headrace.config.broker import BrokerSettings
from headrace.kafka.server import why_not_listening
from headrace.model.errors import StartupError
from headrace.model.image import Endpoint
from headrace.observe.repeated_log import RepeatedLog
from headrace.security.tls.listener import PendingHandshakes, TlsListener

log = logging.getLogger(__name__)

_BACKLOG = 1024
_SWEEP_EVERY_S = 1.0
_CLOSE_TIMEOUT_S = 1.0


class HttpServer:
    """Serves an ASGI application: starlette's router, or any other callable of that interface."""

    def __init__(self, settings: BrokerSettings, app: AsgiApp, tls: ssl.SSLContext | None = None) -> None:
        """With `tls` it serves https. If the application has a method `begin`, requests that have arrived in whole are
        given to it (see `exchange.Begin`)."""
        self._settings = settings
        self._tls = tls
        self._closed = asyncio.Event()
        """Set each time that a connection is closed."""
        self._state = HttpServerState(
            app,
            settings.max_connections,
            getattr(app, "begin", None),
            on_closed=self._closed.set,
            on_answered=log_access if settings.http_access_log else None,
        )
        self._failures = RepeatedLog(log)
        self._handshakes = PendingHandshakes(
            settings.max_pending_connections, settings.max_pending_connections_per_ip, self._failures
        )
        self._server: asyncio.Server | TlsListener | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, listen: Endpoint, *, may_move: bool) -> Endpoint:
        """Listen, and return the bound address. With `may_move` a free port replaces one that is in use."""
        self._set_date()
        try:
            port = await self._bind(listen.host, listen.port)
        except OSError as error:
            if not may_move or not listen.port:
                raise StartupError(why_not_listening(listen, error, "--http-listen")) from error
            port = await self._bind(listen.host, 0)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep(), name="http-sweeper")
        return Endpoint(listen.host, port)

    async def _bind(self, host: str, port: int) -> int:
        """Listen, and return the bound port."""
        state = self._state

        def make_connection() -> HttpServerConnection:
            return HttpServerConnection(state)

        if self._tls is not None:
            self._server = listener = await TlsListener.bind(
                host or None, port, _BACKLOG, self._tls, make_connection, self._handshakes
            )
            return listener.port
        loop = asyncio.get_running_loop()
        self._server = server = await loop.create_server(make_connection, host or None, port, backlog=_BACKLOG)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self, timeout_s: float) -> None:
        """Accept no more requests, wait at most `timeout_s` for the responses in progress, then close."""
        state = self._state
        if self._server is not None and (closing := self._server.close()) is not None:
            await closing
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
            self._failures.flush()
            for connection in tuple(self._state.connections):
                connection.enforce_timeouts(loop.time(), stall_s=stall_s, idle_s=idle_s)

    def _set_date(self) -> None:
        self._state.date_header = (b"date", formatdate(usegmt=True).encode())
