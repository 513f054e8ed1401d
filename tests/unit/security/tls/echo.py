"""A TLS server on loopback that sends back what it gets, in an event loop of its own, and a client for it."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, cast

TIMEOUT_S = 30.0


class _Echo(asyncio.BufferedProtocol):
    """As the broker's connections do, it hands out buffers instead of being handed bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = bytearray(64 * 1024)
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self._transport.write(b"known\n" if certificate else b"anonymous\n")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(bytes(self._buffer[:nbytes]))


@contextmanager
def echo_server(
    context: ssl.SSLContext, run: Callable[[Coroutine[Any, Any, None]], Any] = asyncio.run
) -> Iterator[int]:
    """Yields the port. `run` is `asyncio.run` or `uvloop.run`."""
    ready = threading.Event()
    port = 0
    stop: Callable[[], object] = lambda: None  # noqa: E731

    async def serve() -> None:
        nonlocal port, stop
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        # Handshakes that fail are what these tests are about.
        loop.set_exception_handler(lambda _loop, _context: None)
        server = await loop.create_server(_Echo, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        stop = lambda: loop.call_soon_threadsafe(stopped.set)  # noqa: E731
        ready.set()
        await stopped.wait()
        server.close()

    thread = threading.Thread(target=lambda: run(serve()), daemon=True)
    thread.start()
    assert ready.wait(TIMEOUT_S)
    try:
        yield port
    finally:
        stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


class EchoClient:
    """A connection; `who` is what the server knows of this client: `known` or `anonymous`."""

    def __init__(
        self,
        port: int,
        context: ssl.SSLContext,
        host: str = "localhost",
        session: ssl.SSLSession | None = None,
    ) -> None:
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        try:
            self.socket = context.wrap_socket(plain, server_hostname=host, session=session)
        except OSError:
            plain.close()
            raise
        try:
            # With TLS 1.3 a client hears that its certificate was refused only when it reads.
            self.who = self._line()
        except OSError:
            self.socket.close()
            raise

    def _line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            some = self.socket.recv(1)
            if not some:
                raise ConnectionResetError("the server closed the connection")
            line += some
        return line.decode().strip()

    def echo(self, text: str) -> str:
        self.socket.sendall(f"{text}\n".encode())
        return self._line()

    @property
    def serial(self) -> str:
        """The serial number of the server's certificate."""
        return str((self.socket.getpeercert() or {})["serialNumber"])

    def __enter__(self) -> "EchoClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
