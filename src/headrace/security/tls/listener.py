"""A listening socket for TLS that knows its connections from the accept on, and not only after the handshake.

`create_server(ssl=…)` reports a connection when its handshake is complete: until then it is neither counted nor
bounded, and a failure has no address. Here each accepted socket is pending first, and closed when others need its
place, so that a flood of half-done handshakes costs bounded memory.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from headrace.observe.repeated_log import RepeatedLog
from headrace.security.pending import PendingConnections
from headrace.security.tls.handshake import CONNECTION_FAILED, handshake_reason

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
SHUTDOWN_TIMEOUT_S = 1.0
"""How long a connection that we close waits for the client's close_notify; the event loop's default is 30 s."""
_ALERT_LINGER_S = 0.5
"""How long a client has to read why its handshake failed."""
_RETRY_ACCEPT_S = 0.1
_ACCEPTS_AT_A_TIME = 64
_IPV4_MAPPED = "::ffff:"


class PendingHandshakes:
    """The handshakes of all TLS listeners of a server, and the log of those that fail."""

    def __init__(self, most: int, most_per_address: int, failures: RepeatedLog) -> None:
        self._sockets: PendingConnections[socket.socket] = PendingConnections(most, most_per_address)
        self.failures = failures

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, accepted: socket.socket, address: str) -> None:
        """Add a handshake; the oldest is ended if there are too many."""
        crowded_out = self._sockets.add(accepted, address)
        if crowded_out is not None:
            self.failures.note(address, f"too many TLS handshakes are in progress: closed the oldest, for {address}")
            _end(crowded_out)

    def remove(self, accepted: socket.socket) -> None:
        self._sockets.discard(accepted)


class TlsListener:
    """Accepts connections on the addresses of one host; each becomes a protocol once its handshake is complete."""

    def __init__(
        self,
        sockets: list[socket.socket],
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        handshakes: PendingHandshakes,
    ) -> None:
        self.sockets = sockets
        self._context = context
        self._make_protocol = make_protocol
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._connecting: dict[asyncio.Task[None], socket.socket] = {}
        self._is_closed = False
        for each in sockets:
            self._watch(each)

    @classmethod
    async def bind(
        cls,
        host: str | None,
        port: int,
        backlog: int,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        handshakes: PendingHandshakes,
    ) -> Self:
        """Listen on every address of the host, or of this machine. Raises OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sockets.append(_listening(socket.socket(family, kind, protocol), address, backlog))
        except OSError:
            for each in sockets:
                each.close()
            raise
        return cls(sockets, context, make_protocol, handshakes)

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accept no more connections, and end the handshakes in progress."""
        self._is_closed = True
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        connecting = dict(self._connecting)
        for task in connecting:
            task.cancel()
        await asyncio.gather(*connecting, return_exceptions=True)
        for task, accepted in connecting.items():
            # One that was cancelled before it began has not closed its socket.
            if task.cancelled():
                accepted.close()

    def _watch(self, listening: socket.socket) -> None:
        if not self._is_closed:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_A_TIME):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(accepted, str(peer[0]).removeprefix(_IPV4_MAPPED)))
            self._connecting[task] = accepted
            task.add_done_callback(self._connecting.pop)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Accept nothing for a moment: no file descriptor is left, or no memory."""
        text = f"cannot accept connections: {error.strerror}"
        self._handshakes.failures.note("this broker", text, logging.ERROR)
        self._loop.remove_reader(listening)
        self._loop.call_later(_RETRY_ACCEPT_S, self._watch, listening)

    async def _connect(self, accepted: socket.socket, address: str) -> None:
        handshakes, loop = self._handshakes, self._loop
        has_failed = False

        def failed(reason: str) -> None:
            nonlocal has_failed
            has_failed = True
            handshakes.failures.note(address, f"the TLS handshake of {address} failed: {reason}")
            loop.call_later(_ALERT_LINGER_S, _end, accepted)

        CONNECTION_FAILED.set(failed)
        handshakes.add(accepted, address)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                self._make_protocol,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            if not has_failed:
                failed(handshake_reason(error))
            accepted.close()
        except BaseException:
            accepted.close()
            raise
        finally:
            handshakes.remove(accepted)


def _end(accepted: socket.socket) -> None:
    """End the stream: the event loop, which owns the socket, closes it then. A no-op on a closed socket."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


def _listening(made: socket.socket, address: tuple[object, ...], backlog: int) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(backlog)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made
