"""One HTTP request and its response, as ASGI's `receive` and `send` present them to an application.

The response goes through

    WAITING ──response.start──▶ HEAD_READY ──first body event──▶ STREAMING ──last body event──▶ COMPLETE

and the head is written together with the first body event: a response that is complete by then leaves in one write,
which is most of the cost of a small response. A connection that is lost ends the exchange in any state.

An application may also have `begin`, for requests that have arrived in whole: it gets the exchange instead of events,
and answers with `respond`, in one step and without a task. That halves the cost of a small request.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Protocol

from headrace.observe.request_mark import mark_task, thread_mark

log = logging.getLogger(__name__)

REQUEST_ID = "headrace.request_id"
"""Where the scope has the id of the request, which the response names as x-request-id."""

BODY_HIGH_WATER_BYTES = 64 * 1024
"""Reading from the connection pauses while this much of a request body waits for the application."""

AsgiEvent = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiEvent]]
AsgiSend = Callable[[AsgiEvent], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]
Work = Callable[[], Awaitable[None]]
"""The work on a request, to be done in a task."""
Begin = Callable[["HttpExchange"], Work | None]
"""Begins the work on a request that has arrived in whole: it calls `HttpExchange.respond` at once or later, or returns
the work that does."""

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_WITHOUT_BODY = frozenset({204, 304})
_FAILURE = b"Internal Server Error"
_FAILURE_HEADERS = [(b"content-type", b"text/plain; charset=utf-8")]


class ResponseState(Enum):
    WAITING = auto()
    HEAD_READY = auto()
    STREAMING = auto()
    COMPLETE = auto()


class ExchangeConnection(Protocol):
    """The part of a connection that an exchange uses."""

    is_write_paused: bool
    on_answered: "Callable[[HttpExchange, float], None] | None"
    """Is called when an exchange has ended, with the seconds that it took; None without an access log."""

    def write(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Return when the client has read enough of the response, or has disconnected."""

    def update_reading(self) -> None:
        """Resume or pause reading, after the application consumed a part of the body."""

    def response_complete(self) -> None:
        """Close the connection, or start the next request."""

    def close(self) -> None:
        """Close the connection once the client has read what was written."""

    def abort(self) -> None:
        """Close the connection at once."""

    def date_header(self) -> tuple[bytes, bytes]: ...


class HttpExchange:
    __slots__ = (
        "_body",
        "_connection",
        "_expects_continue",
        "_is_body_delivered",
        "_is_chunked",
        "_left_bytes",
        "_start",
        "_waiters",
        "buffered_bytes",
        "has_more_body",
        "is_disconnected",
        "keep_alive",
        "on_disconnect",
        "request_id",
        "scope",
        "sent_bytes",
        "state",
    )

    def __init__(
        self, connection: ExchangeConnection, scope: AsgiScope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.request_id: str = scope[REQUEST_ID]
        self.sent_bytes = 0
        """The size of the response's body so far."""
        self.keep_alive = keep_alive
        self.state = ResponseState.WAITING
        self.is_disconnected = False
        self.on_disconnect: Callable[[], None] | None = None
        """Called when the client disconnects before the response."""
        self.has_more_body = True
        self.buffered_bytes = 0
        self._connection = connection
        self._expects_continue = expects_continue
        self._body: list[bytes] = []
        self._is_body_delivered = False
        self._waiters: list[asyncio.Future[None]] = []
        self._start: AsgiEvent = {}
        self._is_chunked = False
        self._left_bytes: int | None = None
        """Body bytes that the content-length still promises."""

    @property
    def is_complete(self) -> bool:
        return self.state is ResponseState.COMPLETE

    @property
    def status(self) -> int:
        """The status of the response; 0 before it begins."""
        return int(self._start.get("status", 0))

    @property
    def client(self) -> str:
        """The address of the client, for log lines."""
        found = self.scope["client"]
        return f"{found[0]}:{found[1]}" if found else "unknown"

    def begin(self, begin: Begin) -> Work | None:
        """Begin the work on this request, which has arrived in whole; what is left of it for `run`, if any."""
        mark = thread_mark()
        mark.request = self
        try:
            return begin(self)
        except Exception:
            log.exception("a request over HTTP failed")
            self._fail()
            return None
        finally:
            mark.request = None

    async def run(self, work: Work) -> None:
        """Run the application's work on this request. Its failure is a 500, or the end of the connection mid-response.

        An application that does not want to go on with a client raises `ConnectionAbortedError`,
        which ends the connection at once.
        """
        mark = mark_task(self)
        try:
            on_answered = self._connection.on_answered
            if on_answered is None:
                await self._run(work)
                return
            began_s = time.monotonic()
            try:
                await self._run(work)
            finally:
                on_answered(self, time.monotonic() - began_s)
        finally:
            mark.request = None

    async def _run(self, work: Work) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            self._connection.close()
            raise
        except ConnectionAbortedError as error:
            log.info("a client over HTTP is disconnected: %s", error)
            # Closing would wait until the client has read what is buffered.
            self._connection.abort()
            return
        except Exception:
            log.exception("a request over HTTP failed")
        else:
            if self.is_complete or self.is_disconnected:
                return
            log.error("a request over HTTP failed: the application returned without a complete response")
        self._fail()

    # -- the request

    def feed(self, piece: bytes) -> None:
        """Add a part of the body. It is discarded after the response."""
        if not self.is_complete:
            self._body.append(piece)
            self.buffered_bytes += len(piece)
            self._wake()

    def end_of_body(self) -> None:
        self.has_more_body = False
        self._wake()

    def disconnect(self) -> None:
        self.is_disconnected = True
        if self.on_disconnect is not None and not self.is_complete:
            self.on_disconnect()
        self._wake()

    async def receive(self) -> AsgiEvent:
        if self._expects_continue and self.state is ResponseState.WAITING and not self.is_disconnected:
            self._expects_continue = False
            self._connection.write(_CONTINUE)
        while True:
            if self.is_disconnected or self.is_complete:
                return {"type": "http.disconnect"}
            if self._body or not (self.has_more_body or self._is_body_delivered):
                break
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        body = self.take_body()
        self._is_body_delivered = not self.has_more_body
        if self.has_more_body:
            self._connection.update_reading()
        return {"type": "http.request", "body": body, "more_body": self.has_more_body}

    def take_body(self) -> bytes:
        """The body of a request that has arrived in whole. `receive` then waits until the client disconnects."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self.buffered_bytes = 0
        self._is_body_delivered = True
        return body

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # -- the response

    def respond(self, status: int, lines: bytes, body: bytes) -> None:
        """Send a whole response to a request that is no HEAD. `lines` are headers as they are sent, each with the end
        of its line, and without the length of the body."""
        if self.is_disconnected:
            return
        self._start = {"status": status}
        self.sent_bytes = len(body)
        if not self.keep_alive:
            lines += b"connection: close\r\n"
        self._connection.write(
            b"%bdate: %b\r\n%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n%b"
            % (
                _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status,
                self._connection.date_header()[1],
                lines,
                len(body),
                self.request_id.encode(),
                body,
            )
        )
        self._complete()

    async def send(self, event: AsgiEvent) -> None:
        if self._connection.is_write_paused and not self.is_disconnected:
            await self._connection.drained()
        if self.is_disconnected:
            return
        kind = event["type"]
        if self.state is ResponseState.WAITING and kind == "http.response.start":
            self._start = event
            self.state = ResponseState.HEAD_READY
        elif self.state is ResponseState.HEAD_READY and kind == "http.response.body":
            self._first_body(event.get("body", b""), event.get("more_body", False))
        elif self.state is ResponseState.STREAMING and kind == "http.response.body":
            self._next_body(event.get("body", b""), event.get("more_body", False))
        else:
            raise RuntimeError(f"the ASGI event {kind} is not allowed when the response is {self.state.name}")

    def _first_body(self, body: bytes, has_more: bool) -> None:
        status, headers = self._start["status"], [*self._start.get("headers", ())]
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), None)
        if status in _WITHOUT_BODY or self.scope["method"] == "HEAD":
            self._connection.write(self._head(status, headers))
            self._left_bytes, body = None, b""
        else:
            if length is None:
                headers.append(self._framing(len(body), has_more))
            self._left_bytes = length
            head = self._head(status, headers)
            self._connection.write(b"".join((head, self._framed(body, has_more))))
        self.state = ResponseState.STREAMING
        if not has_more:
            self._complete()

    def _next_body(self, body: bytes, has_more: bool) -> None:
        if self._start["status"] not in _WITHOUT_BODY and self.scope["method"] != "HEAD":
            framed = self._framed(body, has_more)
            if framed:
                self._connection.write(framed)
        if not has_more:
            self._complete()

    def _framing(self, length: int, has_more: bool) -> tuple[bytes, bytes]:
        """The header that says where a body without a content-length ends."""
        if not has_more:
            return b"content-length", b"%d" % length
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
            return b"connection", b"close"
        self._is_chunked = True
        return b"transfer-encoding", b"chunked"

    def _framed(self, body: bytes, has_more: bool) -> bytes:
        self.sent_bytes += len(body)
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if has_more else chunk + b"0\r\n\r\n"
        if self._left_bytes is not None:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not has_more):
                raise RuntimeError("the response's body is not as long as its content-length")
        return body

    def _head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
        headers.insert(0, self._connection.date_header())
        headers.append((b"x-request-id", self.request_id.encode()))
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        lines = b"\r\n".join([b"%b: %b" % header for header in headers])
        if len(lines.splitlines()) != len(headers):
            raise RuntimeError("a header of the response contains a line break")
        return b"%b%b\r\n\r\n" % (_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, lines)

    def _complete(self) -> None:
        self.state = ResponseState.COMPLETE
        self._body.clear()
        self.buffered_bytes = 0
        self._wake()
        self._connection.response_complete()

    def _fail(self) -> None:
        """Answer 500 if nothing was sent; a response that was begun can only be cut off."""
        if self.is_disconnected or self.is_complete:
            return
        self.keep_alive = False
        if self.state is ResponseState.STREAMING:
            self._connection.close()
            return
        self._is_chunked, self._left_bytes = False, None
        self._start = {"status": HTTPStatus.INTERNAL_SERVER_ERROR.value, "headers": _FAILURE_HEADERS}
        self._first_body(_FAILURE, has_more=False)
