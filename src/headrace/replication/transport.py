"""The transport between brokers: TCP here, a modelled network in the simulation. All such connections use it.

`protocol/response_stream.py` matches responses with requests; this module drives it from the event loop.
"""

import asyncio
import socket
from typing import Protocol, cast

from headrace.model.errors import PeerUnavailable, ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.exchange import ResponseFrame, SentRequest
from headrace.protocol.response_stream import ResponseStream
from headrace.runtime.buffers import BufferPool

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A larger response is refused: a leader bounds its responses by the request's limit, plus one batch."""
_SCRATCH_BYTES = 256 * 1024

_Future = asyncio.Future[ResponseFrame]


class Channel(Protocol):
    """An open connection. After `exchange` has raised `PeerUnavailable` it is unusable."""

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        """Send a request, whose header and body are `body`, and return its response.

        Requests may be pipelined; responses come in their order. `PeerUnavailable` if there is none.
        """
        ...

    def release(self, frame: memoryview) -> None:
        """Release the frame of a response: no part of it is used any more, and its memory may be reused."""
        ...

    def close(self) -> None:
        """Close the connection. Pending requests get `PeerUnavailable`."""
        ...


class Transport(Protocol):
    async def connect(self, endpoint: Endpoint) -> Channel:
        """Open a connection, or raise `PeerUnavailable`."""
        ...


class TcpTransport:
    def __init__(self, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._buffers = BufferPool()
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """Shared by all channels: received bytes are consumed in the same event loop iteration."""

    async def connect(self, endpoint: Endpoint) -> Channel:
        """Open a connection and prepare it for requests: the only place that connects to another broker.

        TLS belongs into `_opened`; SASL belongs here, as exchanges on the channel before it is returned.
        """
        return await self._opened(endpoint)

    async def _opened(self, endpoint: Endpoint) -> "TcpChannel":
        loop = asyncio.get_running_loop()
        try:
            _, channel = await loop.create_connection(
                lambda: TcpChannel(endpoint, ResponseStream(self._max_answer_bytes, self._buffers, self._scratch)),
                endpoint.host,
                endpoint.port,
            )
        except (OSError, UnicodeError) as error:
            raise PeerUnavailable(f"no broker answers at {endpoint}: {error}") from None
        return channel


class TcpChannel(asyncio.BufferedProtocol):
    def __init__(self, endpoint: Endpoint, stream: ResponseStream[_Future]) -> None:
        self._endpoint = endpoint
        self._stream = stream
        self._transport: asyncio.Transport | None = None
        self._reason = f"the connection to {endpoint} is closed"

    # -- the user's side

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        if self._transport is None or self._transport.is_closing():
            raise PeerUnavailable(self._reason)
        answer: _Future = asyncio.get_running_loop().create_future()
        self._transport.write(self._stream.begin(request, body, answer))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._give_up(f"the broker at {self._endpoint} did not answer within {timeout_s:g} s")
            raise PeerUnavailable(self._reason) from None

    def release(self, frame: memoryview) -> None:
        self._stream.release(frame)

    def close(self) -> None:
        self._give_up(f"the connection to {self._endpoint} was closed")

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._stream.window()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            responses = self._stream.received(nbytes)
        except ProtocolError as error:
            self._give_up(f"the broker at {self._endpoint} sent an invalid response: {error}")
            return
        for answer, response in responses:
            if answer.done():
                # The caller has stopped waiting.
                self._stream.release(response.frame)
            else:
                answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        why = f": {exc}" if exc is not None else ""
        self._fail(f"the broker at {self._endpoint} closed the connection{why}")

    # -- inside

    def _give_up(self, reason: str) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._reason = reason
        for answer in self._stream.abandon():
            if not answer.done():
                answer.set_exception(PeerUnavailable(reason))
