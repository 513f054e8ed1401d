"""What a busy broker does first: requests of groups, admins and followers, then those of producers and consumers."""

import asyncio
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from headrace.kafka import connection as module
from headrace.kafka.budget import RequestBudget
from headrace.kafka.bulk_line import CROWDED_READ_BYTES, SLICE_MS, BulkLine
from headrace.kafka.dispatch import Raw, Route
from tests.waiting import until_async

from .test_connection import KIB, MIB, Client, FakeHost, FakeTransport, request_of

HEARTBEAT = pack(">hhih", 12, 4, 7, -1)
METADATA = pack(">hhih", 3, 9, 7, -1)


class BusyBroker:
    """Handles each request in two thirds of a slice, so that the second one after the first must wait."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.host.time_ms = 1000.0
        self.handled: list[bytes] = []
        self.route = Route(lambda _, body: self._handle(body), lambda frame, _: bytes(frame[10:]), False)

    def _handle(self, body: bytes) -> Any:
        self.handled.append(body)
        self.host.time_ms += SLICE_MS * 2 / 3
        return Raw((body,))

    def producers(self, count: int) -> list[Client]:
        clients = [Client(self.host) for _ in range(count)]
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
        return clients


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BusyBroker]:
    busy = BusyBroker()
    monkeypatch.setattr(module, "route", lambda key, version: busy.route)
    yield busy
    while FakeTransport.sockets:
        FakeTransport.sockets.pop().close()


def test_urgent_requests_are_handled_before_bulk_requests_that_came_first(broker: BusyBroker) -> None:
    async def test() -> None:
        for client in broker.producers(4):
            client.push()
        assert broker.handled == [b"0", b"1"]
        member, follower = Client(broker.host), Client(broker.host)
        member.send_raw(HEARTBEAT + b"beat", METADATA + b"topics")
        member.push()
        assert broker.handled[2:] == [b"beat", b"topics"]
        assert follower.connection.peer is not None
        follower.connection.peer.is_follower = True
        follower.send_raw(pack(">hhih", 1, 12, 7, -1) + b"replicate")
        follower.push()
        assert broker.handled[4:] == [b"replicate"]
        assert broker.host.line.waiting_count == 2
        await asyncio.sleep(0)
        assert broker.handled[5:] == [b"2", b"3"]

    asyncio.run(test())


def test_those_in_line_get_a_slice_between_two_polls_in_the_order_of_their_arrival(broker: BusyBroker) -> None:
    async def test() -> None:
        clients = broker.producers(9)
        for client in clients:
            client.push()
        assert all(client.transport.is_reading for client in clients)
        clients[0].send(b"again")
        clients[0].push()
        for served in (4, 6, 8):
            await asyncio.sleep(0)
            assert broker.handled == [b"%d" % number for number in range(served)]
            reading = [client.transport.is_reading for client in clients[1:]]
            assert reading == [True] * (served - 1) + [False] * (9 - served)
        await asyncio.sleep(0)
        assert broker.handled[8:] == [b"8", b"again"]
        assert broker.host.line.waiting_count == 0

    asyncio.run(test())


def test_one_that_comes_in_the_turn_of_the_last_gets_no_second_slice_for_the_line() -> None:
    """A handler may wake another connection: the line was empty then, and yet it is being served."""

    now_ms = 0.0
    turns: list[int] = []

    class Waker:
        def __init__(self, line: BulkLine, wakes: int = 0) -> None:
            self.line, self.wakes = line, wakes

        def take_turn(self) -> None:
            nonlocal now_ms
            now_ms += SLICE_MS
            turns.append(self.wakes)
            for _ in range(self.wakes):
                self.line.wait(Waker(self.line), 0)

        def hold(self) -> None: ...

    async def test() -> None:
        line = BulkLine(lambda: now_ms)
        line.wait(Waker(line, wakes=4), 0)
        for count in (1, 2, 3, 4, 5):
            await asyncio.sleep(0)
            assert len(turns) == count
        assert line.waiting_count == 0
        line.wait(Waker(line), 0)
        await asyncio.sleep(0)
        assert len(turns) == 6

    asyncio.run(test())


def test_a_connection_in_line_that_is_read_again_is_not_read_any_more(broker: BusyBroker) -> None:
    """libuv reads a socket up to 32 times before others have their turn."""

    async def test() -> None:
        for client in broker.producers(3):
            client.push()
        client = Client(broker.host)
        for body in (b"first", b"second"):
            client.send(body)
            client.push()
        assert not client.transport.is_reading
        await until_async(lambda: not broker.host.line.waiting_count)
        assert broker.handled[3:] == [b"first", b"second"]
        assert client.transport.is_reading

    asyncio.run(test())


def test_requests_of_one_connection_stay_in_order(broker: BusyBroker) -> None:
    """An urgent request behind a bulk one of the same connection waits with it."""

    async def test() -> None:
        for client in broker.producers(3):
            client.push()
        client = Client(broker.host)
        client.send_raw(request_of(b"first"), HEARTBEAT + b"second", request_of(b"third"))
        client.push()
        assert broker.handled == [b"0", b"1"]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert broker.handled[3:] == [b"first", b"second", b"third"]
        await asyncio.sleep(0)
        assert client.transport.other_end.recv(100) == b"".join(
            pack(">i", len(a)) + a for a in (b"first", b"second", b"third")
        )

    asyncio.run(test())


def test_a_broker_with_time_lets_nothing_wait(broker: BusyBroker) -> None:
    async def test() -> None:
        for client in broker.producers(9):
            broker.host.time_ms += 2.0
            client.push()
        assert len(broker.handled) == 9
        assert broker.host.line.waits == 0

    asyncio.run(test())


def test_a_connection_that_is_lost_or_closed_in_line_handles_nothing(broker: BusyBroker) -> None:
    async def test() -> None:
        clients = broker.producers(5)
        for client in clients:
            client.push()
        clients[2].connection.connection_lost(None)
        clients[3].connection.close("was closed by the test")
        await asyncio.sleep(0)
        assert broker.handled == [b"0", b"1", b"4"]

    asyncio.run(test())


def test_less_is_read_at_a_time_while_those_in_line_hold_much_memory(broker: BusyBroker) -> None:
    async def test() -> None:
        for client in broker.producers(3):
            client.push()
        line = broker.host.line
        assert len(Client(broker.host).connection.get_buffer(-1)) == 64 * KIB
        while not line.is_crowded:
            client = Client(broker.host)
            client.send(*[b"x" * 15 * KIB] * 4)
            client.push()
            assert line.waiting_count < 2000
        assert len(Client(broker.host).connection.get_buffer(-1)) == CROWDED_READ_BYTES
        await until_async(lambda: not line.waiting_count)
        assert not line.is_crowded

    asyncio.run(test())


def test_a_reserve_of_memory_is_for_urgent_requests() -> None:
    budget = RequestBudget(8 * MIB)
    assert budget.take(8 * MIB)
    assert not budget.take(1)
    assert budget.take(MIB, is_urgent=True)
    assert not budget.take(1, is_urgent=True)
    budget.release(2 * MIB)
    assert not budget.take(1 * MIB + 1)
    assert budget.take(MIB)


def test_a_large_urgent_request_does_not_wait_for_the_memory_of_producers(broker: BusyBroker) -> None:
    async def test() -> None:
        host = broker.host = FakeHost(limit_bytes=8 * MIB)
        # Each has sent most of a large request; one more waits for memory.
        for _ in range(9):
            producer = Client(host)
            producer.send(b"x" * (MIB - 100))
            while producer.push(most=32 * KIB) and producer.connection._frames.got_bytes < 900 * KIB:
                pass
        assert host.budget.waiting_count == 1
        assert broker.handled == []
        member = Client(host)
        member.send_raw(HEARTBEAT + b"x" * 300 * KIB)
        while member.push(most=32 * KIB):
            pass
        assert broker.handled == [b"x" * 300 * KIB]

    asyncio.run(test())
