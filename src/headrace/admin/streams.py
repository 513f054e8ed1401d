"""Answers that are sent piece by piece: events (SSE) and lines of JSON (NDJSON).

A piece is sent when the client has read enough of those before it, so that at most one piece and the buffer of the
connection (64 KiB) wait in memory. A client that does not read for `SLOW_S` is disconnected. A client that goes away
ends the work for it at once, and so does a broker that stops. `OpenStreams` bounds the number of streams, in total and
for each principal.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headrace.admin.errors import AdminError

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"
SLOW_S = 10.0
MAX_STREAMS = 1000
MAX_STREAMS_PER_PRINCIPAL = 250
RETRY = b"retry: 2000\n\n"
"""How long a browser waits before it connects again."""
HEARTBEAT = b": still there\n\n"

_LATER = {"retry-after": "10"}


def event(data: bytes, *, name: str = "", event_id: str = "") -> bytes:
    """One server-sent event. JSON has no line breaks, so the data is one line."""
    head = b"id: %b\n" % event_id.encode() if event_id else b""
    if name:
        head += b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, data)


class OpenStreams:
    """The streams that are open."""

    def __init__(self, most: int = MAX_STREAMS, most_per_principal: int = MAX_STREAMS_PER_PRINCIPAL) -> None:
        self._most = most
        self._most_per_principal = most_per_principal
        self._by_principal: Counter[str] = Counter()
        self.closing = asyncio.Event()
        """Set when the broker stops."""

    @property
    def count(self) -> int:
        return self._by_principal.total()

    def check(self, principal: str) -> None:
        """Refuse one stream too many."""
        if self.count >= self._most or self._by_principal[principal] >= self._most_per_principal:
            raise AdminError(
                429, "too_many_streams", "too many streams are open: close pages that are not looked at", _LATER
            )

    @contextmanager
    def counted(self, principal: str) -> Iterator[None]:
        self._by_principal[principal] += 1
        try:
            yield
        finally:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


@dataclass(frozen=True, slots=True)
class ByteStream:
    """An answer that is made while it is sent."""

    media_type: str
    pieces: AsyncIterator[bytes]
    streams: OpenStreams
    principal: str


class StreamResponse(Response):
    """Sends a `ByteStream`, until it, the client or the broker ends."""

    def __init__(self, stream: ByteStream, headers: Mapping[str, str]) -> None:
        self._stream = stream
        super().__init__(None, 200, dict(headers), media_type=stream.media_type)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._stream
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_until_disconnected(receive))
        closing = asyncio.ensure_future(stream.streams.closing.wait())
        tasks = (sending, leaving, closing)
        try:
            with stream.streams.counted(stream.principal):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_leaving = leaving.done()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error
        if not is_leaving:
            await _send_soon(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        pieces = self._stream.pieces
        try:
            async for piece in pieces:
                await _send_soon(send, {"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                with suppress(RuntimeError):
                    await close()


async def _send_soon(send: Send, message: Message) -> None:
    """Send a piece; `SlowReader` if the client does not read those before it in time."""
    try:
        async with asyncio.timeout(SLOW_S):
            await send(message)
    except TimeoutError:
        raise SlowReader(f"it has not read its stream for {SLOW_S:g} s") from None


class SlowReader(ConnectionAbortedError):
    """The client of a stream does not read it, and is disconnected."""


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
