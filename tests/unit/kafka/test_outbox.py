"""Bytes and file ranges leave in order, whatever pace the other side reads at."""

import asyncio
import errno
import random
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.kafka.outbox import FileRange, SocketOutbox
from headrace.kafka.socket_room import SocketRoom
from headrace.runtime.disk import OsDisk


class Transport:
    """As much of a transport as an outbox needs."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.calls: list[str] = []

    def get_extra_info(self, name: str) -> Any:
        return SimpleNamespace(fileno=self.sock.fileno)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


@pytest.fixture
def pair() -> Any:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def a_file(tmp_path: Path, data: bytes) -> Any:
    (tmp_path / "segment").write_bytes(data)
    return OsDisk().open_read_only(tmp_path / "segment")


async def read_exactly(sock: socket.socket, size: int, pace: random.Random) -> bytes:
    loop, got = asyncio.get_running_loop(), bytearray()
    while len(got) < size:
        got += await asyncio.wait_for(loop.sock_recv(sock, pace.randint(1, 200_000)), 60)
    return bytes(got)


@pytest.mark.parametrize("seed", range(8))
def test_everything_arrives_in_order(tmp_path: Path, pair: Any, seed: int) -> None:
    ours, theirs = pair
    rng = random.Random(seed)
    stored = rng.randbytes(3_000_000)
    file = a_file(tmp_path, stored)
    parts: list[Any] = []
    expected = bytearray()
    for _ in range(rng.randint(5, 400)):
        if rng.random() < 0.3:
            start = rng.randint(0, len(stored) - 2)
            length = rng.randint(1, min(500_000, len(stored) - start))
            parts.append(FileRange(file, start, length))
            expected += stored[start : start + length]
        else:
            data = rng.randbytes(rng.choice([1, 100, 70_000]))
            parts.append(data if rng.random() < 0.5 else memoryview(data))
            expected += data

    async def run() -> None:
        room = asyncio.Event()
        outbox = SocketOutbox(Transport(ours), room.set, SocketRoom())  # type: ignore[arg-type]
        reading = asyncio.create_task(read_exactly(theirs, len(expected), rng))
        for part in parts:
            outbox.send([part])
            if rng.random() < 0.1:
                await asyncio.sleep(0)
        had_to_wait = outbox.pending_bytes > 0
        assert await reading == expected
        if had_to_wait:
            await asyncio.wait_for(room.wait(), 60)
        assert outbox.pending_bytes == 0
        assert not outbox.is_full

    asyncio.run(run())


def test_a_client_that_does_not_read_fills_it_and_closing_waits_for_the_rest(pair: Any) -> None:
    ours, theirs = pair

    async def run() -> None:
        transport = Transport(ours)
        outbox = SocketOutbox(transport, lambda: None, SocketRoom())  # type: ignore[arg-type]
        outbox.send([b"x" * 5_000_000])
        assert outbox.is_full
        outbox.close_when_empty()
        assert transport.calls == []
        await read_exactly(theirs, 5_000_000, random.Random(1))
        async with asyncio.timeout(60):
            while not transport.calls:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        assert transport.calls == ["close"]

    asyncio.run(run())


def test_a_client_that_is_gone_ends_the_connection(pair: Any) -> None:
    ours, theirs = pair

    async def run() -> None:
        transport = Transport(ours)
        outbox = SocketOutbox(transport, lambda: None, SocketRoom())  # type: ignore[arg-type]
        theirs.close()
        outbox.send([b"x" * 100])
        assert transport.calls == ["abort"]
        assert outbox.pending_bytes == 0

    asyncio.run(run())


def test_a_file_that_is_shorter_than_promised_ends_the_connection(tmp_path: Path, pair: Any) -> None:
    ours, _ = pair

    async def run() -> None:
        transport = Transport(ours)
        outbox = SocketOutbox(transport, lambda: None, SocketRoom())  # type: ignore[arg-type]
        outbox.send([FileRange(a_file(tmp_path, b"short"), 0, 100)])
        assert transport.calls == ["abort"]

    asyncio.run(run())


def test_one_that_cannot_wait_for_its_client_ends_the_connection(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than keep it for ever, with an answer that nobody goes on with."""

    def no_descriptor_left() -> None:
        raise OSError(errno.EMFILE, "played")

    async def run() -> None:
        transport = Transport(pair[0])
        outbox = SocketOutbox(transport, lambda: None, SocketRoom())  # type: ignore[arg-type]
        monkeypatch.setattr("headrace.kafka.socket_room.select.epoll", no_descriptor_left)
        outbox.send([bytes(10_000_000)])
        assert transport.calls == ["abort"]
        assert outbox.pending_bytes == 0

    asyncio.run(run())


def test_one_that_stops_for_others_goes_on_although_its_socket_never_was_full(
    tmp_path: Path, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    monkeypatch.setattr("headrace.kafka.outbox._BYTES_PER_TURN", 1000)

    async def run() -> None:
        room = asyncio.Event()
        outbox = SocketOutbox(Transport(ours), room.set, SocketRoom())  # type: ignore[arg-type]
        outbox.send([FileRange(a_file(tmp_path, b"y" * 5000), 0, 5000)])
        assert outbox.pending_bytes == 4000
        await asyncio.wait_for(room.wait(), 60)
        assert await read_exactly(theirs, 5000, random.Random(1)) == b"y" * 5000

    asyncio.run(run())


def test_a_connection_that_is_lost_is_not_written_to_when_its_socket_has_room(pair: Any) -> None:
    ours, theirs = pair

    async def run() -> None:
        room, last = SocketRoom(), asyncio.Event()
        transport = Transport(ours)
        outbox = SocketOutbox(transport, lambda: None, room)  # type: ignore[arg-type]
        outbox.send([b"x" * 5_000_000])
        outbox.abandon()
        room.watch(ours.fileno(), last.set)
        await read_exactly(theirs, 100_000, random.Random(1))
        await asyncio.wait_for(last.wait(), 60)
        assert outbox.pending_bytes == 0
        assert transport.calls == []

    asyncio.run(run())
