"""An HTTP/1.1 connection of a client: bytes to requests with `httptools`, one response after the other.

The state of reading:

    BETWEEN ──first byte──▶ HEAD ──blank line──▶ BODY ──end──▶ BETWEEN        any ──not HTTP──▶ REFUSED

Requests that arrive before the response to an earlier one (pipelining) wait, and nothing more is read meanwhile. The
limits: the size of a head; the time for a head; silence in the middle of a body, of a response, and between requests.
An offer to upgrade to another protocol is ignored, as HTTP allows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from headrace.app.http.exchange import (
    BODY_HIGH_WATER_BYTES,
    REQUEST_ID,
    AsgiApp,
    AsgiScope,
    Begin,
    HttpExchange,
    ResponseState,
    Work,
)
from headrace.model.unique_ids import is_request_id, new_id

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 64 * 1024

_HEAD_TOO_LARGE = f"The head of a request may have {MAX_HEAD_BYTES} bytes."
_REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"x-request-id: %b\r\nconnection: close\r\n\r\n%b"
)
_ASGI = {"version": "3.0", "spec_version": "2.3"}


@dataclass(slots=True)
class HttpServerState:
    """The state that the connections of a server share."""

    app: AsgiApp
    max_connections: int
    begin: Begin | None = None
    """The application's own way to answer requests that have arrived in whole, if it has one."""
    date_header: tuple[bytes, bytes] = (b"date", b"")
    connections: "set[HttpServerConnection]" = field(default_factory=set)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    on_closed: Callable[[], None] = lambda: None
    on_answered: Callable[[HttpExchange, float], None] | None = None
    """Writes the access log; None without one."""


class _Reading(Enum):
    BETWEEN = auto()
    HEAD = auto()
    BODY = auto()
    REFUSED = auto()


class HttpServerConnection(asyncio.Protocol):
    def __init__(self, state: HttpServerState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._reading = _Reading.BETWEEN
        self._is_reading_paused = False
        self._current: HttpExchange | None = None
        """The request that the application works on, or answered last."""
        self._newest: HttpExchange | None = None
        """The request that was read last; its body may still be arriving."""
        self._due: HttpExchange | None = None
        """The request to begin when what has arrived is parsed."""
        self._waiting: deque[HttpExchange] = deque()
        """Pipelined requests, until the response to `_current` is complete."""
        self._received_s = self._written_s = self._loop.time()
        self._head_since_s = 0.0
        self._piece_bytes = 0
        """The size of the piece that is being parsed."""
        self._begun_bytes = self._head_bytes = 0
        """The size of the piece in which a head began, and of those after it."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._request_id = b""
        self._common: dict[str, Any] = {}
        self._client: tuple[str, int] | None = None
        self.is_write_paused = False
        self.on_answered = state.on_answered
        self._drain_waiters: list[asyncio.Future[None]] = []

    # -- the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._client = _address(transport.get_extra_info("peername"))
        self._common = {
            "type": "http",
            "asgi": _ASGI,
            "server": _address(transport.get_extra_info("sockname")),
            "client": self._client,
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "root_path": "",
        }
        state = self._state
        state.connections.add(self)
        if len(state.connections) > state.max_connections:
            log.warning("refused a connection over HTTP: max.connections=%d are open", state.max_connections)
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._state.connections.discard(self)
        for exchange in (self._current, *self._waiting):
            if exchange is not None:
                exchange.disconnect()
        self._waiting.clear()
        self.resume_writing()
        # Each of them refers to this connection: without a cycle it is freed at once.
        self._current = self._newest = self._due = None
        self._parser = None  # type: ignore[assignment]
        self._state.on_closed()

    def data_received(self, data: bytes) -> None:
        self._received_s = self._loop.time()
        self._piece_bytes = len(data)
        if self._reading is _Reading.REFUSED:
            return
        if self._reading is _Reading.HEAD:
            self._head_bytes += len(data)
        try:
            self._parse(data)
        except HttpParserError as error:
            self._refuse(str(error.__context__ or error))
        else:
            if self._reading is _Reading.HEAD and self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(_HEAD_TOO_LARGE)
        if self._due is not None:
            due, self._due = self._due, None
            self._begin(due)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                # The parser takes the body for another protocol's: it reads the request again, without the offer.
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self._piece_bytes = len(data)
                self._parser = HttpRequestParser(self)

    def _head_without_upgrade(self) -> bytes:
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise HttpParserError("CONNECT is not supported.")
        lines = [b"%b: %b\r\n" % header for header in self._headers if header[0] != b"upgrade"]
        version = self._parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._url, version, b"".join(lines))

    def pause_writing(self) -> None:
        self.is_write_paused = True

    def resume_writing(self) -> None:
        self.is_write_paused = False
        self._written_s = self._loop.time()
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- the parser

    def on_message_begin(self) -> None:
        self._reading = _Reading.HEAD
        self._head_since_s = self._received_s
        self._begun_bytes, self._head_bytes = self._piece_bytes, 0
        self._url = b""
        self._headers = []
        self._expects_continue = False
        self._request_id = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        elif name == b"x-request-id":
            self._request_id = value
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._begun_bytes + self._head_bytes > MAX_HEAD_BYTES:
            # Perhaps: there may be more than the head in it.
            head_bytes = len(self._url) + sum(map(len, chain.from_iterable(self._headers)))
            if head_bytes > MAX_HEAD_BYTES:
                raise ValueError(_HEAD_TOO_LARGE)
        version = self._parser.get_http_version()
        exchange = self._newest = HttpExchange(
            self,
            self._scope(version),
            keep_alive=version != "1.0" and self._parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )
        self._reading = _Reading.BODY
        if self._current is None or self._current.state is ResponseState.COMPLETE:
            self._current = self._due = exchange
        else:
            self._waiting.append(exchange)
            self.update_reading()

    def on_body(self, body: bytes) -> None:
        assert self._newest is not None
        self._newest.feed(body)
        if self._newest.buffered_bytes > BODY_HIGH_WATER_BYTES:
            self.update_reading()

    def on_message_complete(self) -> None:
        if self._reading is _Reading.BODY and self._newest is not None:
            self._reading = _Reading.BETWEEN
            self._newest.end_of_body()

    def _scope(self, version: str) -> AsgiScope:
        given_id = self._request_id
        scope = self._common.copy()
        scope["http_version"] = version
        scope["method"] = self._parser.get_method().decode("ascii")
        if self._url == b"/":
            scope["path"], scope["raw_path"], scope["query_string"] = "/", b"/", b""
        else:
            raw_path, scope["query_string"] = _target(self._url)
            path = raw_path.decode("latin-1")
            scope["path"], scope["raw_path"] = unquote(path) if "%" in path else path, raw_path
        scope["headers"] = self._headers
        scope[REQUEST_ID] = given_id.decode() if given_id and is_request_id(given_id) else new_id()
        scope["state"] = {}
        return scope

    def _refuse(self, why: str) -> None:
        """End the connection because of bytes that are no request; earlier requests are answered first."""
        request_id = new_id()
        fields = {"request_id": request_id}
        address = self._client[0] if self._client else "?"
        log.info("refused a request over HTTP from %s: %s", address, why, extra={"fields": fields})
        broken = self._newest if self._reading is _Reading.BODY else None
        self._reading = _Reading.REFUSED
        if broken is not None:
            broken.disconnect()
            if broken in self._waiting:
                self._waiting.remove(broken)
        pending = (self._current, *self._waiting)
        unanswered = [each for each in pending if each is not None and each is not broken and not each.is_complete]
        if unanswered:
            unanswered[-1].keep_alive = False
            return
        if broken is None or broken.state in (ResponseState.WAITING, ResponseState.HEAD_READY):
            text = why.encode()
            self._transport.write(_REFUSAL % (len(text), request_id.encode(), text))
        self._transport.close()

    # -- exchanges

    def _begin(self, exchange: HttpExchange) -> None:
        begin = self._state.begin
        if begin is None or exchange.has_more_body or self.is_write_paused or self.on_answered is not None:
            self._run(exchange)
        elif (work := exchange.begin(begin)) is not None:
            self._run(exchange, work)

    def _run(self, exchange: HttpExchange, work: Work | None = None) -> None:
        if work is None:
            work = partial(self._state.app, exchange.scope, exchange.receive, exchange.send)
        tasks = self._state.tasks
        task = self._loop.create_task(exchange.run(work))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def write(self, data: bytes) -> None:
        self._written_s = self._loop.time()
        self._transport.write(data)

    async def drained(self) -> None:
        while self.is_write_paused:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def update_reading(self) -> None:
        newest = self._newest
        must_pause = bool(self._waiting) or (newest is not None and newest.buffered_bytes > BODY_HIGH_WATER_BYTES)
        if must_pause is not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._received_s = self._head_since_s = self._loop.time()
                self._transport.resume_reading()

    def response_complete(self) -> None:
        assert self._current is not None
        if not self._current.keep_alive:
            self._transport.close()
        elif self._waiting:
            # Not with `begin`: a response that is complete at once would begin the next one, and that one the next.
            exchange = self._current = self._waiting.popleft()
            self._run(exchange)
        if self._is_reading_paused:
            self.update_reading()

    def date_header(self) -> tuple[bytes, bytes]:
        return self._state.date_header

    def close(self) -> None:
        self._transport.close()

    # -- the server

    def shut_down(self) -> None:
        """Close as soon as no request is unanswered."""
        if self._newest is None or self._newest.is_complete:
            self._transport.close()
        else:
            self._newest.keep_alive = False

    def abort(self) -> None:
        self._transport.abort()

    def enforce_timeouts(self, now_s: float, *, stall_s: float, idle_s: float) -> None:
        """Abort the connection of a client that is too slow, or silent for too long."""
        owes_request = self._reading in (_Reading.HEAD, _Reading.BODY) and not self._is_reading_paused
        if self._transport.get_write_buffer_size() > 0 and now_s - self._written_s > stall_s:
            is_over = True
        elif owes_request:
            since_s = self._head_since_s if self._reading is _Reading.HEAD else self._received_s
            is_over = now_s - since_s > stall_s
        elif self._current is not None and not self._current.is_complete:
            is_over = False
        else:
            is_over = now_s - max(self._received_s, self._written_s) > idle_s
        if is_over:
            self._transport.abort()


def _target(url: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target."""
    parsed: Any = parse_url(url)
    return parsed.path or b"/", parsed.query or b""


def _address(found: Any) -> tuple[str, int] | None:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple | list) and len(found) >= 2 else None
