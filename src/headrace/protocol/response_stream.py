"""The client side of a connection, sans-IO: bytes in, responses out, each with the request that it answers.

`replication/transport.py` drives it from an event loop, `wire/connection.py` from blocking reads. A driver opens the
socket, sends the frames of `begin`, receives into `window`, and applies its timeouts. Everything that can be wrong with
the received bytes is found here, and is a `ProtocolError`: a length out of bounds, a response without a request, or one
with another correlation id. The connection is unusable after it.
"""

from collections import deque
from typing import Generic, TypeVar

from headrace.model.errors import ProtocolError
from headrace.protocol.exchange import ResponseFrame, SentRequest
from headrace.protocol.frames import FIRST_ROOM_BYTES, Buffers, FrameReader, framed

Waiter = TypeVar("Waiter")
"""What a driver attaches to a request: a future, or a deadline."""


class ResponseStream(Generic[Waiter]):
    """The requests in flight on one connection, and the responses received on it, in the same order."""

    __slots__ = ("_frames", "_in_flight", "_scratch")

    def __init__(
        self,
        max_response_bytes: int,
        buffers: Buffers,
        scratch: memoryview,
        *,
        first_room_bytes: int = FIRST_ROOM_BYTES,
    ) -> None:
        """`scratch` receives small responses, and may be shared: `received` copies them. Larger ones are received in
        place, in `buffers`; of a response that announces more, at first `first_room_bytes` are allocated."""
        self._frames = FrameReader(max_response_bytes, buffers, first_room_bytes)
        self._scratch = scratch
        self._in_flight: deque[tuple[SentRequest, Waiter]] = deque()

    def __len__(self) -> int:
        """The number of requests in flight."""
        return len(self._in_flight)

    @property
    def oldest(self) -> tuple[SentRequest, Waiter]:
        """The request in flight whose response is next."""
        return self._in_flight[0]

    def begin(self, request: SentRequest, body: bytes, waiter: Waiter) -> bytes:
        """Add a request to those in flight. Returns the frame to send."""
        self._in_flight.append((request, waiter))
        return framed(body)

    def window(self) -> memoryview:
        """The buffer for the next bytes from the socket."""
        return self._frames.window() if self._frames.wants_window else self._scratch

    def received(self, count: int) -> list[tuple[Waiter, ResponseFrame]]:
        """Note `count` bytes written to the window. Returns the responses that they complete."""
        frames = self._frames
        matched: list[tuple[Waiter, ResponseFrame]] = []
        if frames.wants_window:
            large = frames.advance(count)
            if large is not None:
                matched.append(self._matched(memoryview(large)))
        else:
            for frame in frames.feed(self._scratch[:count]):
                matched.append(self._matched(memoryview(frame)))
        return matched

    def release(self, frame: memoryview) -> None:
        """Return the buffer of a response: no part of it is used any more."""
        self._frames.release(frame)

    def abandon(self) -> list[Waiter]:
        """Forget all requests in flight, because the connection is lost. Returns their waiters."""
        in_flight, self._in_flight = self._in_flight, deque()
        return [waiter for _, waiter in in_flight]

    def _matched(self, frame: memoryview) -> tuple[Waiter, ResponseFrame]:
        if not self._in_flight:
            raise ProtocolError("a response without a request")
        request, waiter = self._in_flight[0]
        response = ResponseFrame(request, frame, request.body_at(frame))
        self._in_flight.popleft()
        return waiter, response
