"""Splits a byte stream into frames: a 4-byte length, then that many bytes. Sans-IO.

There are two inputs, so that small frames need no buffer per connection and large ones are received in place:
- `feed` takes bytes from a scratch buffer that all connections share, unless `wants_window`;
- `window` returns a buffer for the rest of a large frame, and `advance` reports how much of it was filled.

A length is checked before anything is allocated, and a buffer grows with the bytes received, so that a client that
announces much and sends little costs little. Buffers come from a pool; `release` returns the buffer of a frame that has
been handled.
"""

from collections.abc import Collection
from struct import Struct
from typing import Protocol

from headrace.model.errors import ProtocolError

_LENGTH = Struct(">i")
_LENGTH_BYTES = _LENGTH.size
_HEAD_BYTES = 2
FIRST_ROOM_BYTES = 64 * 1024
_GROWTH = 4

Frame = bytes | memoryview


class Buffers(Protocol):
    """The part of `BufferPool` that this module uses."""

    def take(self, size: int) -> bytearray: ...

    def release(self, buffer: bytearray) -> None: ...


def framed(body: bytes) -> bytes:
    """A frame: the length, then the body."""
    return _LENGTH.pack(len(body)) + body


def frame_size(data: bytes | bytearray | memoryview, at: int, max_bytes: int) -> int:
    """The size of the frame whose length field is at `at`; `ProtocolError` if it is negative or too large."""
    size: int = _LENGTH.unpack_from(data, at)[0]
    if size < 0 or size > max_bytes:
        raise ProtocolError(
            f"a frame of {size} bytes is not between 0 and {max_bytes} (socket.request.max.bytes); "
            "the client may be speaking TLS or HTTP to a plain Kafka port"
        )
    return size


class FrameReader:
    __slots__ = ("_first_room_bytes", "_got", "_head", "_pool", "_room", "_size", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, pool: Buffers, first_room_bytes: int = FIRST_ROOM_BYTES) -> None:
        """Of a frame that announces more, at first `first_room_bytes` are allocated."""
        self.max_frame_bytes = max_frame_bytes
        self._first_room_bytes = first_room_bytes
        self._pool = pool
        self._head = b""
        self._room: bytearray | None = None
        self._size = 0
        self._got = 0

    @property
    def is_inside_frame(self) -> bool:
        """True if a frame is incomplete. Past its length, the rest goes to `window`."""
        return self._room is not None or bool(self._head)

    @property
    def got_bytes(self) -> int:
        """How many bytes of the incomplete frame were received."""
        return len(self._head) if self._room is None else self._got

    @property
    def needed_bytes(self) -> int:
        """The buffer size of the incomplete frame at its next byte, for which `window` may grow the buffer."""
        room = self._room
        if room is None:
            return 0
        return len(room) if self._got < len(room) else self._larger(room)

    def begins_with(self, heads: Collection[bytes]) -> bool:
        """Whether the first two bytes of the incomplete frame are one of these; False if they are not there yet."""
        return self._room is not None and self._got >= _HEAD_BYTES and bytes(self._room[:_HEAD_BYTES]) in heads

    @property
    def wants_window(self) -> bool:
        return self._room is not None

    def feed(self, chunk: memoryview) -> list[Frame]:
        """The frames that `chunk` completes. They are copies: the chunk may be reused at once."""
        if self._head:
            chunk = memoryview(self._head + chunk)
            self._head = b""
        frames: list[Frame] = []
        at, end = 0, len(chunk)
        while end - at >= _LENGTH_BYTES:
            size = frame_size(chunk, at, self.max_frame_bytes)
            at += _LENGTH_BYTES
            if end - at < size:
                self._start_room(size, chunk[at:])
                return frames
            frames.append(bytes(chunk[at : at + size]))
            at += size
        self._head = bytes(chunk[at:])
        return frames

    def window(self) -> memoryview:
        """The buffer for the next bytes of the incomplete frame."""
        room = self._room
        if room is None:
            raise ValueError("there is no incomplete frame")
        if self._got == len(room):
            larger = self._pool.take(self._larger(room))
            larger[: self._got] = room
            self._pool.release(room)
            self._room = room = larger
        return memoryview(room)[self._got : self._size]

    def advance(self, count: int) -> Frame | None:
        """Note `count` bytes written to the window. Returns the frame if it is complete."""
        self._got += count
        if self._got < self._size:
            return None
        room = self._room
        if room is None:
            raise ValueError("there is no incomplete frame")
        self._room = None
        return memoryview(room)[: self._size].toreadonly()

    def release(self, frame: Frame) -> None:
        """Return the buffer of a frame to the pool: the caller holds no reference to it."""
        if isinstance(frame, memoryview):
            room = frame.obj
            frame.release()
            if isinstance(room, bytearray):
                self._pool.release(room)

    def _larger(self, room: bytearray) -> int:
        return min(self._size, _GROWTH * len(room))

    def _start_room(self, size: int, first: memoryview) -> None:
        self._size = size
        self._got = len(first)
        self._room = self._pool.take(min(size, max(self._first_room_bytes, _GROWTH * self._got)))
        self._room[: self._got] = first
