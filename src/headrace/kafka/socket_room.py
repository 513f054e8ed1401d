"""Tells outboxes when their sockets accept bytes again: one epoll for all connections, which the event loop watches.

A socket is registered once, edge-triggered, and stays registered: waiting costs no system call. The event loop's own
`add_writer` would need a duplicate of the descriptor, and a dozen system calls for each answer that does not fit.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger(__name__)

_EVENTS = select.EPOLLOUT | select.EPOLLET
_SOCKETS_PER_TURN = 64


class SocketRoom:
    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._is_closed = False
        self._on_writable: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, on_writable: Callable[[], None]) -> None:
        """Call `on_writable` from now on whenever the socket, which was full, accepts bytes. Raises `OSError`."""
        if self._is_closed:
            raise OSError("the listener has stopped")
        epoll = self._epoll
        if epoll is None:
            epoll = self._epoll = select.epoll()
            asyncio.get_running_loop().add_reader(epoll.fileno(), self._serve, epoll)
        # Closing a socket removed its registration: its descriptor can be registered for the next one.
        epoll.register(fd, _EVENTS)
        self._on_writable[fd] = on_writable

    def forget(self, fd: int, on_writable: Callable[[], None]) -> None:
        """Never call `on_writable` again. The socket may be closed, and its descriptor already be another's."""
        if self._epoll is not None and self._on_writable.get(fd) == on_writable:
            del self._on_writable[fd]
            with suppress(OSError):
                self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop watching, for good."""
        self._is_closed = True
        epoll, self._epoll = self._epoll, None
        self._on_writable.clear()
        if epoll is not None:
            asyncio.get_running_loop().remove_reader(epoll.fileno())
            epoll.close()

    def _serve(self, epoll: select.epoll) -> None:
        for fd, _ in epoll.poll(0, _SOCKETS_PER_TURN):
            on_writable = self._on_writable.get(fd)
            try:
                if on_writable is not None:
                    on_writable()
            except Exception:
                # The other sockets are not reported again.
                log.exception("an answer could not be sent on")
