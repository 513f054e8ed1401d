"""Outboxes hear of room in their sockets, each of its own, however descriptors are reused."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from headrace.kafka.socket_room import SocketRoom


def fill(sock: socket.socket) -> None:
    sock.setblocking(False)
    try:
        while True:
            sock.send(bytes(65536))
    except BlockingIOError:
        pass


def drain(sock: socket.socket) -> None:
    sock.setblocking(False)
    try:
        while sock.recv(1 << 20):
            pass
    except BlockingIOError:
        pass


def test_a_socket_is_registered_once_and_heard_of_each_time_that_it_has_room_again() -> None:
    async def run() -> None:
        room, called = SocketRoom(), asyncio.Event()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            fill(ours)
            room.watch(ours.fileno(), called.set)
            for _ in range(3):
                assert not called.is_set()
                drain(theirs)
                await asyncio.wait_for(called.wait(), 60)
                called.clear()
                fill(ours)
            room.close()

    asyncio.run(run())


def test_one_that_is_forgotten_is_not_called() -> None:
    async def run() -> None:
        room, calls, last = SocketRoom(), list[str](), asyncio.Event()
        pairs = [socket.socketpair() for _ in range(2)]
        ends: list[Callable[[], None]] = [lambda: calls.append("forgotten"), last.set]
        for (ours, _), end in zip(pairs, ends, strict=True):
            fill(ours)
            room.watch(ours.fileno(), end)
        room.forget(pairs[0][0].fileno(), ends[0])
        for _, theirs in pairs:
            drain(theirs)
        await asyncio.wait_for(last.wait(), 60)
        assert calls == []
        room.close()
        for pair in pairs:
            for each in pair:
                each.close()

    asyncio.run(run())


def test_the_descriptor_of_a_closed_socket_may_be_anothers_when_it_is_forgotten() -> None:
    async def run() -> None:
        room, called = SocketRoom(), asyncio.Event()

        def former() -> None:
            raise AssertionError("its socket is closed")

        ours, theirs = socket.socketpair()
        fd = ours.fileno()
        fill(ours)
        room.watch(fd, former)
        ours.close()
        theirs.close()
        ours, theirs = socket.socketpair()
        assert fd in (ours.fileno(), theirs.fileno())
        ours, theirs = (ours, theirs) if ours.fileno() == fd else (theirs, ours)
        with ours, theirs:
            fill(ours)
            room.watch(fd, called.set)
            room.forget(fd, former)
            drain(theirs)
            await asyncio.wait_for(called.wait(), 60)
            room.close()

    asyncio.run(run())


def test_one_that_fails_does_not_keep_the_others_from_hearing_of_room() -> None:
    async def run() -> None:
        room, called = SocketRoom(), [asyncio.Event() for _ in range(5)]
        pairs = [socket.socketpair() for _ in called]

        def failing(event: asyncio.Event) -> None:
            event.set()
            raise ValueError("played")

        for (ours, _), event in zip(pairs, called, strict=True):
            fill(ours)
            room.watch(ours.fileno(), lambda event=event: failing(event))  # type: ignore[misc]
        for _, theirs in pairs:
            drain(theirs)
        for event in called:
            await asyncio.wait_for(event.wait(), 60)
        room.close()
        for pair in pairs:
            for each in pair:
                each.close()

    asyncio.run(run())


def test_nothing_is_watched_after_the_listener_has_stopped() -> None:
    async def run() -> Any:
        room = SocketRoom()
        room.close()
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(OSError, match="has stopped"):
            room.watch(ours.fileno(), lambda: None)

    asyncio.run(run())
