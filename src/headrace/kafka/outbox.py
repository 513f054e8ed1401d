"""The send queue of a connection: bytes, and file ranges that go from the page cache to the socket.

A file range is sent by `sendfile`, so its bytes never enter this process. The event loop's transport cannot do that, so
answers are written to the socket directly, in order; the rest waits until the socket is writable again. The transport
is used only for reading and closing, and never has anything to write.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from headrace.runtime.disk import Buffer, DiskFile

_FULL_AT_BYTES = 64 * 1024
_BUFFERS_PER_CALL = 256


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


class Outbox:
    def __init__(self, transport: asyncio.Transport, on_room: Callable[[], None]) -> None:
        """`on_room` is called when all queued bytes have been sent."""
        self._transport = transport
        self._fd: int = transport.get_extra_info("socket").fileno()
        self._on_room = on_room
        self._parts: deque[Part] = deque()
        self._waiting_fd: int | None = None
        self._closes_when_empty = False
        self.pending_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the client reads answers more slowly than it sends requests."""
        return self.pending_bytes > _FULL_AT_BYTES

    def send(self, parts: Sequence[Part]) -> None:
        """Send `parts` after everything queued before them."""
        self._parts.extend(parts)
        self.pending_bytes += sum(map(len, parts))
        if self._waiting_fd is None:
            self._write()

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
        self._stop_waiting()

    def _write(self) -> None:
        """Write as much as the socket accepts."""
        parts = self._parts
        try:
            try:
                while parts:
                    self._write_some()
            except BlockingIOError:
                self._wait()
        except OSError:
            # The client has disconnected, a file cannot be read, or no descriptor is left to wait with.
            self.abandon()
            self._transport.abort()

    def _write_some(self) -> None:
        parts = self._parts
        head = parts[0]
        if isinstance(head, FileRange):
            sent = head.file.send_to(self._fd, head.position, head.length)
            if not sent:
                raise OSError(f"{head.file.path.name} ends before the {head.length} bytes that were to be sent")
            self.pending_bytes -= sent
            head.position += sent
            head.length -= sent
            if not head.length:
                parts.popleft()
            return
        buffers: list[Buffer] = []
        for part in islice(parts, _BUFFERS_PER_CALL):
            if isinstance(part, FileRange):
                break
            buffers.append(part)
        sent = os.writev(self._fd, buffers)
        self.pending_bytes -= sent
        for buffer in buffers:
            if sent < len(buffer):
                parts[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            parts.popleft()

    def _wait(self) -> None:
        if self._waiting_fd is None:
            # A duplicate descriptor, since the event loop watches the transport's for reading.
            self._waiting_fd = os.dup(self._fd)
            asyncio.get_running_loop().add_writer(self._waiting_fd, self._on_writable)

    def _on_writable(self) -> None:
        self._write()
        if self._parts:
            return
        self._stop_waiting()
        if self._closes_when_empty:
            self._transport.close()
        else:
            self._on_room()

    def _stop_waiting(self) -> None:
        fd, self._waiting_fd = self._waiting_fd, None
        if fd is not None:
            asyncio.get_running_loop().remove_writer(fd)
            os.close(fd)
