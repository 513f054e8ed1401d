"""The HTTP server in the broker's own loop: the connections of uvicorn under this broker's bounds, and routes of the
doors behind them.

A connection is closed when it is silent for too long, sooner where it owes us the rest of a request or does not take an
answer; so nothing waits for ever for a peer that is gone. Bodies are read by the doors, in pieces and with a limit of
their own: uvicorn stops reading from a connection whose body nobody takes. An answer that is there as a whole leaves in
one write.
"""

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from email.utils import formatdate
from typing import Any

from starlette.routing import Router

from headrace.config.broker import BrokerSettings
from headrace.kafka.server import why_not_listening
from headrace.model.errors import StartupError
from headrace.model.image import Endpoint

try:
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
    from uvicorn.server import ServerState
except ImportError as error:  # The package has no upper bound on uvicorn, and these are not part of its interface.
    raise StartupError("this uvicorn is too new for the broker's HTTP server: pip install 'uvicorn<0.55'") from error

log = logging.getLogger(__name__)

_BACKLOG = 1024
_SWEEP_EVERY_S = 1.0
_MAX_HEAD_BYTES = 64 * 1024
_CLOSE_TIMEOUT_S = 1.0

Event = MutableMapping[str, Any]


class HttpServer:
    def __init__(self, settings: BrokerSettings, router: Router) -> None:
        self._settings = settings
        self._state = ServerState()
        self._config = Config(
            router,
            http=_Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self._config.load()
        # uvicorn tells every request that is no HTTP; here a line that says who sent it is written instead.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._closed = asyncio.Event()
        """Set each time that a connection is closed."""
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self, listen: Endpoint, *, may_move: bool) -> Endpoint:
        """Listen; the address that is bound. With `may_move` a free port is taken where the one asked for is not."""
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
        settings, state, config = self._settings, self._state, self._config
        return await asyncio.get_running_loop().create_server(
            lambda: _Connection(config, state, settings, self._closed.set), host or None, port, backlog=_BACKLOG
        )

    async def stop(self, timeout_s: float) -> None:
        """Take no more requests, wait until those under way are answered, then close."""
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for connection in tuple(self._state.connections):
            connection.shutdown()
        await self._wait_until_closed(timeout_s)
        for task in tuple(self._state.tasks):
            task.cancel()
        await self._wait_until_closed(_CLOSE_TIMEOUT_S)
        for connection in tuple(self._state.connections):
            connection.transport.abort()
        await self._wait_until_closed(_CLOSE_TIMEOUT_S)
        if self._state.tasks:
            await asyncio.wait(tuple(self._state.tasks), timeout=_CLOSE_TIMEOUT_S)

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
                if isinstance(connection, _Connection):
                    connection.look_after(loop.time(), stall_s=stall_s, idle_s=idle_s)

    def _set_date(self) -> None:
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]


class _Connection(HttpToolsProtocol):
    """uvicorn's, which leaves to others how long a head is, how many connections there are and how long they live."""

    def __init__(
        self, config: Config, state: ServerState, settings: BrokerSettings, on_closed: Callable[[], None]
    ) -> None:
        super().__init__(config, state, app_state={})
        self.app = _answering(self.app)
        self._on_closed = on_closed
        self._max_connections = settings.max_connections
        self._active_s = self.loop.time()
        self._head_bytes = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            log.warning("refused a connection over HTTP: max.connections=%d are open", self._max_connections)
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_closed()

    def data_received(self, data: bytes) -> None:
        self._active_s = self.loop.time()
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The head of a request may have {_MAX_HEAD_BYTES} bytes.")

    def send_400_response(self, msg: str) -> None:
        log.info("refused a request over HTTP from %s: %s", self.client[0] if self.client else "?", msg)
        super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        before = self.cycle
        super().on_headers_complete()
        cycle: Any = self.cycle
        # Versions of uvicorn before 0.47 look for the client's `Connection: close` only in what they send themselves.
        if cycle is not None and cycle is not before and not self.parser.should_keep_alive():
            cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """uvicorn's would set a timer for each answer; here `look_after` closes what is silent."""
        self._active_s = self.loop.time()
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                cycle, app = self.pipeline.pop()
                task = self.loop.create_task(cycle.run_asgi(app))
                task.add_done_callback(self.tasks.discard)
                self.tasks.add(task)

    def look_after(self, now_s: float, *, stall_s: float, idle_s: float) -> None:
        """Close the connection if it has been silent for too long."""
        cycle: Any = self.cycle
        owes_request = self._in_head or (cycle is not None and cycle.more_body and not cycle.response_complete)
        owes_reading = self.transport.get_write_buffer_size() > 0
        is_working = cycle is not None and not cycle.response_complete and not cycle.response_started
        if owes_request or owes_reading:
            limit_s = stall_s
        elif is_working:
            return
        else:
            limit_s = idle_s
        if now_s - self._active_s > limit_s:
            self.transport.abort()


def _answering(app: Any) -> Any:
    """The application with `_Answer` in place of uvicorn's `send`, which is a method of the request's cycle."""
    return lambda scope, receive, send: app(scope, receive, _Answer(send.__self__))


class _Answer:
    """What an application sends. The head waits for the body: if that is whole, both leave in one write, which is most
    of what a small answer costs; anything else is for uvicorn to send."""

    __slots__ = ("_cycle", "_start")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._start: Event | None = None

    async def __call__(self, event: Event) -> None:
        cycle = self._cycle
        if event["type"] == "http.response.start" and self._start is None and not cycle.response_started:
            self._start = event
            return
        start, self._start = self._start, None
        if start is not None:
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                if cycle.flow.write_paused and not cycle.disconnected:
                    await cycle.flow.drain()
                if cycle.disconnected or self._write(start, event.get("body", b"")):
                    return
            await cycle.send(start)  # type: ignore[arg-type]
        await cycle.send(event)  # type: ignore[arg-type]

    def _write(self, start: Event, body: bytes) -> bool:
        """Whether it could be: of a known length, and with headers of one line each."""
        cycle = self._cycle
        headers = [*cycle.default_headers, *start.get("headers", ())]
        length = next((value for name, value in headers if name == b"content-length"), b"")
        if (b"connection", b"close") in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            headers.append((b"connection", b"close"))
        head = b"\r\n".join([b"%b: %b" % header for header in headers])
        if length != b"%d" % len(body) or len(head.splitlines()) != len(headers) or cycle.scope["method"] == "HEAD":
            return False
        cycle.transport.write(b"".join((STATUS_LINE[start["status"]], head, b"\r\n\r\n", body)))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True
