"""The send queue of a connection: bytes, and file ranges that go from the page cache to the socket.

Without TLS a file range is sent by `sendfile`, so its bytes never enter this process. The event loop's transport cannot
do that, so `SocketOutbox` writes to the socket directly, in order; the rest waits until the socket is writable again
(`SocketRoom`). The transport is used only for reading and closing, and never has anything to write.

With TLS the transport encrypts what it sends: `TlsOutbox` gives it a bounded piece at a time, and reads file ranges
then.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from headrace.kafka.socket_room import SocketRoom
from headrace.runtime.disk import Buffer, DiskFile

_FULL_AT_BYTES = 64 * 1024
_BUFFERS_PER_CALL = 256
_BYTES_PER_CALL = 256 * 1024
"""More than a socket accepts at once, by the default of `socket.send.buffer.bytes`."""
_BYTES_PER_TURN = 1024 * 1024
"""How much one connection sends before others have their turn: a client on the same machine takes megabytes at once."""
_TLS_PIECE_BYTES = 128 * 1024
_TLS_HIGH_BYTES = 64 * 1024
_TLS_LOW_BYTES = 16 * 1024


class FileRange:
    """A range of bytes in a file. The file stays open as long as a range refers to it."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length


Part = Buffer | FileRange


class Outbox(Protocol):
    @property
    def pending_bytes(self) -> int:
        """The bytes that the client has not been sent yet."""

    @property
    def is_full(self) -> bool:
        """True if the client reads answers more slowly than it sends requests."""

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts` after everything queued before them."""

    def resume(self) -> None:
        """Go on: the transport has sent what it buffered."""

    def close_when_empty(self) -> None:
        """Close the connection as soon as all pending bytes have been sent."""

    def abandon(self) -> None:
        """Discard everything pending: the connection is lost."""


def outbox_for(transport: asyncio.Transport, on_room: Callable[[], None], room: SocketRoom) -> Outbox:
    """The outbox of a connection; `on_room` is called when all queued bytes have been sent."""
    if transport.get_extra_info("ssl_object") is None:
        return SocketOutbox(transport, on_room, room)
    return TlsOutbox(transport, on_room)


class SocketOutbox:
    def __init__(self, transport: asyncio.Transport, on_room: Callable[[], None], room: SocketRoom) -> None:
        """`on_room` is called when all queued bytes have been sent."""
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._on_room = on_room
        self._parts: deque[Part] = deque()
        self._room = room
        self._is_watched = False
        """Whether `room` calls `_on_writable`; from the first answer that did not fit on."""
        self._closes_when_empty = False
        self.pending_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the client reads answers more slowly than it sends requests."""
        return self.pending_bytes > _FULL_AT_BYTES

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts` after everything queued before them."""
        is_waiting = bool(self._parts)
        self._parts.extend(parts)
        self.pending_bytes += sum(map(len, parts))
        if not is_waiting:
            self._write()

    def resume(self) -> None:
        """Nothing waits for the transport."""

    def close_when_empty(self) -> None:
        """Close the connection as soon as all pending bytes have been sent."""
        if self._parts:
            self._closes_when_empty = True
        else:
            self._transport.close()

    def abandon(self) -> None:
        """Discard everything pending: the connection is lost."""
        self._parts.clear()
        self.pending_bytes = 0
        if self._is_watched:
            self._is_watched = False
            self._room.forget(self._fd, self._on_writable)

    def _write(self) -> None:
        """Write as much as the socket accepts, and no more than fits a turn."""
        parts = self._parts
        stop_at = self.pending_bytes - _BYTES_PER_TURN
        has_room = True
        try:
            try:
                while parts and has_room and self.pending_bytes > stop_at:
                    has_room = self._write_some()
            except BlockingIOError:
                has_room = False
            if parts:
                self._wait(has_room=has_room)
        except OSError:
            # The client has disconnected, a file cannot be read, or no descriptor is left to wait with.
            self.abandon()
            self._transport.abort()

    def _write_some(self) -> bool:
        """Write once; False if the socket is known to be full."""
        parts = self._parts
        head = parts[0]
        if isinstance(head, FileRange):
            sent = head.file.send_to(self._fd, head.position, min(head.length, _BYTES_PER_TURN))
            if not sent:
                raise OSError(f"{head.file.path.name} ends before the {head.length} bytes that were to be sent")
            self.pending_bytes -= sent
            head.position += sent
            head.length -= sent
            if not head.length:
                parts.popleft()
            return True
        buffers: list[Buffer] = []
        offered = 0
        for part in islice(parts, _BUFFERS_PER_CALL):
            if isinstance(part, FileRange) or offered >= _BYTES_PER_CALL:
                break
            buffers.append(part)
            offered += len(part)
        sent = os.writev(self._fd, buffers)
        self.pending_bytes -= sent
        for buffer in buffers:
            if sent < len(buffer):
                # Another call would only say that the socket is full.
                parts[0] = memoryview(buffer)[sent:]
                return False
            sent -= len(buffer)
            parts.popleft()
        return True

    def _wait(self, *, has_room: bool) -> None:
        """Go on when the socket accepts bytes; in the next turn of the event loop if it still does."""
        if has_room:
            asyncio.get_running_loop().call_soon(self._on_writable)
        elif not self._is_watched:
            self._room.watch(self._fd, self._on_writable)
            self._is_watched = True

    def _on_writable(self) -> None:
        if not self._parts:
            return
        self._write()
        if self._parts:
            return
        if self._closes_when_empty:
            self._transport.close()
        else:
            self._on_room()


class TlsOutbox:
    """Gives a TLS transport what it has room for. The transport calls `resume` when it has sent enough of it."""

    def __init__(self, transport: asyncio.Transport, on_room: Callable[[], None]) -> None:
        self._transport = transport
        self._on_room = on_room
        self._parts: deque[Part] = deque()
        self._queued_bytes = 0
        self._closes_when_empty = False
        transport.set_write_buffer_limits(_TLS_HIGH_BYTES, _TLS_LOW_BYTES)

    @property
    def pending_bytes(self) -> int:
        return self._queued_bytes + self._transport.get_write_buffer_size()

    @property
    def is_full(self) -> bool:
        return self._queued_bytes > 0

    def send(self, parts: Sequence[Part]) -> None:
        self._parts.extend(parts)
        self._queued_bytes += sum(map(len, parts))
        self._write()

    def resume(self) -> None:
        had_queued = bool(self._parts)
        self._write()
        if self._parts:
            return
        if self._closes_when_empty:
            self._transport.close()
        elif had_queued:
            self._on_room()

    def close_when_empty(self) -> None:
        if self._parts:
            self._closes_when_empty = True
        else:
            self._transport.close()

    def abandon(self) -> None:
        self._parts.clear()
        self._queued_bytes = 0

    def _write(self) -> None:
        try:
            while self._parts and self._transport.get_write_buffer_size() <= _TLS_HIGH_BYTES:
                self._transport.write(self._next_piece())
        except OSError:
            # A file cannot be read.
            self.abandon()
            self._transport.abort()

    def _next_piece(self) -> bytes:
        """The next bytes to send: small parts joined, a large one in pieces."""
        parts, piece, size = self._parts, [], 0
        while parts and size < _TLS_PIECE_BYTES:
            head, room = parts[0], _TLS_PIECE_BYTES - size
            if isinstance(head, FileRange):
                data: Buffer = head.file.read(head.position, min(room, head.length))
                if not data:
                    raise OSError(f"{head.file.path.name} ends before the {head.length} bytes that were to be sent")
                head.position += len(data)
                head.length -= len(data)
                if not head.length:
                    parts.popleft()
            else:
                data = memoryview(head)[:room]
                if len(data) == len(head):
                    parts.popleft()
                else:
                    parts[0] = memoryview(head)[room:]
            piece.append(data)
            size += len(data)
        self._queued_bytes -= size
        return b"".join(piece)
