"""Over TLS, bytes and file ranges leave in order, whatever pace the client reads at, in bounded memory."""

import asyncio
import random
import socket
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from headrace.kafka.outbox import FileRange, TlsOutbox, outbox_for
from headrace.kafka.socket_room import SocketRoom
from headrace.runtime.disk import OsDisk
from headrace.security.tls.dev_certificates import make_dev_certificates

TIMEOUT_S = 60.0
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Those of a server and of a client that trusts it."""
    made = make_dev_certificates(tmp_path_factory.mktemp("certificates"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.broker.cert_file, made.broker.key_file)
    return server, ssl.create_default_context(cafile=str(made.ca.cert_file))


class Served(asyncio.BufferedProtocol):
    """The broker's side of a connection."""

    def __init__(self, is_open: "asyncio.Future[Served]") -> None:
        self._is_open = is_open
        self._buffer = bytearray(1024)
        self.room = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        outbox = outbox_for(self.transport, self.room.set, SocketRoom())
        assert isinstance(outbox, TlsOutbox)
        self.outbox = outbox
        self._is_open.set_result(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        pass

    def resume_writing(self) -> None:
        self.outbox.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.outbox.abandon()
        self.lost.set()


class Reader:
    """A client on a thread: the event loop of the broker's side is never its own."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock

    async def read(self, size: int, pace: random.Random) -> bytes:
        return await asyncio.to_thread(self._read, size, pace)

    async def read_to_the_end(self) -> int:
        """The number of bytes until the connection ends, in order or not."""
        return await asyncio.to_thread(self._read_to_the_end)

    def _read(self, size: int, pace: random.Random) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self.sock.recv(min(size - len(got), pace.randint(1, 200_000)))
            assert part, f"the connection ended after {len(got)} of {size} bytes"
            got += part
        return bytes(got)

    def _read_to_the_end(self) -> int:
        size = 0
        try:
            while part := self.sock.recv(1 << 16):
                size += len(part)
        except OSError:
            pass
        return size


@asynccontextmanager
async def connected(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[tuple[Served, Reader]]:
    loop = asyncio.get_running_loop()
    is_open: asyncio.Future[Served] = loop.create_future()
    server = await loop.create_server(lambda: Served(is_open), "127.0.0.1", 0, ssl=contexts[0])
    port = server.sockets[0].getsockname()[1]

    def connect() -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        return contexts[1].wrap_socket(plain, server_hostname="localhost")

    sock = await asyncio.to_thread(connect)
    served = await asyncio.wait_for(is_open, TIMEOUT_S)
    try:
        yield served, Reader(sock)
    finally:
        sock.close()
        served.transport.abort()
        await asyncio.wait_for(served.lost.wait(), TIMEOUT_S)
        server.close()


def run(loop: Loop, work: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cast(Any, work()))


def a_file(tmp_path: Path, data: bytes) -> Any:
    (tmp_path / "segment").write_bytes(data)
    return OsDisk().open_read_only(tmp_path / "segment")


@LOOPS
@pytest.mark.parametrize("seed", range(3))
def test_everything_arrives_in_order(tmp_path: Path, contexts: Any, loop: Loop, seed: int) -> None:
    rng = random.Random(seed)
    stored = rng.randbytes(3_000_000)
    file = a_file(tmp_path, stored)
    parts: list[Any] = []
    expected = bytearray()
    for _ in range(rng.randint(5, 200)):
        if rng.random() < 0.3:
            start = rng.randint(0, len(stored) - 2)
            length = rng.randint(1, min(500_000, len(stored) - start))
            parts.append(FileRange(file, start, length))
            expected += stored[start : start + length]
        else:
            data = rng.randbytes(rng.choice([1, 100, 70_000, 400_000]))
            parts.append(data if rng.random() < 0.5 else memoryview(data))
            expected += data

    async def work() -> None:
        async with connected(contexts) as (served, reader):
            outbox = served.outbox
            reading = asyncio.create_task(reader.read(len(expected), rng))
            for part in parts:
                outbox.send([part])
                if rng.random() < 0.1:
                    await asyncio.sleep(0)
            had_to_wait = outbox.is_full
            assert await reading == expected
            if had_to_wait:
                await asyncio.wait_for(served.room.wait(), TIMEOUT_S)
            assert outbox.pending_bytes == 0
            assert not outbox.is_full

    run(loop, work)


@LOOPS
def test_a_client_that_does_not_read_100_mb(tmp_path: Path, contexts: Any, loop: Loop) -> None:
    """File ranges stay in the file: neither the outbox nor the transport has more than some pieces in memory."""
    size = 100_000_000
    path = tmp_path / "segment"
    with path.open("wb") as sparse:
        sparse.truncate(size)
    file = OsDisk().open_read_only(path)

    async def work() -> None:
        async with connected(contexts) as (served, reader):
            tracemalloc.start()
            try:
                served.outbox.send([FileRange(file, 0, size)])
                before = 0
                while served.outbox.pending_bytes != before:
                    before = served.outbox.pending_bytes
                    await asyncio.sleep(0.01)
                assert served.outbox.is_full
                assert served.outbox.pending_bytes > size // 2
                assert not served.room.is_set()
                assert tracemalloc.get_traced_memory()[1] < 4_000_000
            finally:
                tracemalloc.stop()
            assert served.transport.get_write_buffer_size() < 1_000_000
            assert not any(await reader.read(size // 10, random.Random(1)))
            assert served.outbox.is_full

    run(loop, work)


@LOOPS
def test_closing_waits_for_the_rest(contexts: Any, loop: Loop) -> None:
    async def work() -> None:
        async with connected(contexts) as (served, reader):
            served.outbox.send([b"x" * 20_000_000])
            assert served.outbox.is_full
            served.outbox.close_when_empty()
            assert await asyncio.wait_for(reader.read_to_the_end(), TIMEOUT_S) == 20_000_000
            reader.sock.close()
            await asyncio.wait_for(served.lost.wait(), TIMEOUT_S)
            assert not served.room.is_set()

    run(loop, work)


@LOOPS
def test_closing_an_empty_one_is_immediate(contexts: Any, loop: Loop) -> None:
    async def work() -> None:
        async with connected(contexts) as (served, reader):
            served.outbox.send([b"last"])
            served.outbox.close_when_empty()
            assert await asyncio.wait_for(reader.read_to_the_end(), TIMEOUT_S) == 4

    run(loop, work)


@LOOPS
def test_aborted_while_pending(contexts: Any, loop: Loop) -> None:
    async def work() -> None:
        async with connected(contexts) as (served, reader):
            served.outbox.send([b"x" * 20_000_000])
            served.transport.abort()
            await asyncio.wait_for(served.lost.wait(), TIMEOUT_S)
            assert served.outbox.pending_bytes == 0
            served.outbox.resume()
            assert await reader.read_to_the_end() < 20_000_000

    run(loop, work)


@LOOPS
def test_a_client_that_is_gone_ends_the_connection(contexts: Any, loop: Loop) -> None:
    async def work() -> None:
        async with connected(contexts) as (served, reader):
            served.outbox.send([b"x" * 20_000_000])
            reader.sock.close()
            await asyncio.wait_for(served.lost.wait(), TIMEOUT_S)
            assert served.outbox.pending_bytes == 0

    run(loop, work)


@LOOPS
def test_a_file_that_is_shorter_than_promised_ends_the_connection(tmp_path: Path, contexts: Any, loop: Loop) -> None:
    async def work() -> None:
        async with connected(contexts) as (served, reader):
            served.outbox.send([b"head", FileRange(a_file(tmp_path, b"short"), 0, 100)])
            assert served.outbox.pending_bytes == 0
            await asyncio.wait_for(served.lost.wait(), TIMEOUT_S)
            assert await reader.read_to_the_end() < 100

    run(loop, work)
