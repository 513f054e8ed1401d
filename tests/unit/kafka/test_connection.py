"""A connection without a socket: what it does with bytes, with answers that come late, and when memory is short."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from struct import pack
from typing import Any, ClassVar, cast

import pytest

from headrace.config.broker import broker_settings
from headrace.config.listeners import KafkaListener
from headrace.kafka import connection as module
from headrace.kafka.budget import RequestBudget
from headrace.kafka.bulk_line import BulkLine
from headrace.kafka.connection import Connection
from headrace.kafka.connection_host import Admittance
from headrace.kafka.dispatch import Peer, Raw, Route
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.kafka.socket_room import SocketRoom
from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.frames import Frame
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.runtime.buffers import BufferPool
from headrace.runtime.deferred import Deferred
from tests.waiting import until_async

KIB = 1024
MIB = 1024 * KIB


class FakeTransport:
    """As much of a transport as a connection needs, over one end of a pair of sockets."""

    sockets: ClassVar[list[socket.socket]] = []

    def __init__(self) -> None:
        self.sock, self.other_end = socket.socketpair()
        self.sockets.extend((self.sock, self.other_end))
        self.closed = asyncio.Event()
        self.sock.setblocking(False)
        self.other_end.setblocking(False)
        self.is_reading = True
        self.is_closed = False
        self.is_aborted = False

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.sock if name == "socket" else None

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()

    def abort(self) -> None:
        self.is_aborted = True


class FakeHost:
    services: Any = None
    admitted_after_ms = 0.0

    def __init__(self, limit_bytes: int = 256 * MIB) -> None:
        self.budget = RequestBudget(limit_bytes)
        self.scratch = memoryview(bytearray(64 * KIB))
        self.buffers = BufferPool()
        self.max_in_flight = 64
        self.meter: KafkaRequestMeter | None = None
        self.quotas = BrokerQuotas()
        self.time_ms = 0.0
        self.now_ms: Callable[[], float] = lambda: self.time_ms
        self.now_s: Callable[[], float] = lambda: self.time_ms / 1000
        self.line = BulkLine(self.now_ms)
        self.room = SocketRoom()

    def opened(self, connection: Connection, transport: asyncio.Transport, listener: KafkaListener) -> Admittance:
        return Admittance(Peer("client", Endpoint("127.0.0.1", 1)), self.admitted_after_ms)

    def authenticated(self, connection: Connection) -> None: ...

    def closing(self, peer: Peer, reason: str) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def drained(self) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().create_task(coroutine)


class Client:
    """The other end: sends what the connection is ready to take."""

    def __init__(self, host: FakeHost, max_frame_bytes: int = 100 * MIB) -> None:
        self.transport = FakeTransport()
        self.connection = Connection(host, max_frame_bytes, broker_settings({}).broker_listener)
        self.connection.connection_made(cast(asyncio.Transport, self.transport))
        self._unsent = b""

    def send(self, *bodies: bytes) -> None:
        self.send_raw(*map(request_of, bodies))

    def send_raw(self, *requests: bytes) -> None:
        self._unsent += b"".join(pack(">i", len(request)) + request for request in requests)

    def put(self, data: bytes) -> int:
        """Put bytes where the connection reads them."""
        self.connection.get_buffer(-1)[: len(data)] = data
        return len(data)

    async def take(self, size: int) -> None:
        """Read some of the answers, and let the connection send more."""
        loop = asyncio.get_running_loop()
        while size > 0:
            size -= len(await asyncio.wait_for(loop.sock_recv(self.transport.other_end, size), 60))

    def push(self, most: int = 1 << 30) -> bool:
        """Hand over the bytes of one read, as the event loop does; whether the connection took any."""
        if not (self._unsent and self.transport.is_reading):
            return False
        buffer = self.connection.get_buffer(-1)
        count = min(len(buffer), len(self._unsent), most)
        buffer[:count] = self._unsent[:count]
        self._unsent = self._unsent[count:]
        self.connection.buffer_updated(count)
        return True


def request_of(body: bytes) -> bytes:
    return pack(">hhih", 0, 9, 7, -1) + body


Handle = Callable[[bytes], Any]


@pytest.fixture(autouse=True)
def _no_socket_stays_open() -> Iterator[None]:
    yield
    while FakeTransport.sockets:
        FakeTransport.sockets.pop().close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handle], None]:
    """Answer requests with a function of their body."""

    def set_handler(handle: Handle) -> None:
        def read(frame: Frame, _: Any) -> bytes:
            return bytes(frame[10:])

        route = Route(lambda _, body: handle(body), read, False)
        monkeypatch.setattr(module, "route", lambda key, version: route)

    return set_handler


def test_a_request_is_handled_to_its_end_before_the_next_one(serve: Callable[[Handle], None]) -> None:
    """Also where it settles an earlier one of the same connection: else what both append would change places."""
    seen: list[str] = []
    first: Deferred[Any] = Deferred()

    def handle(body: bytes) -> Any:
        seen.append(f"{body.decode()} begins")
        if body == b"1":
            return first
        if body == b"2":
            first.resolve(Raw((b"one",)))
        seen.append(f"{body.decode()} ends")
        return Raw((body,))

    async def test() -> None:
        serve(handle)
        client = Client(FakeHost())
        client.send(b"1", b"2", b"3")
        client.push()
        await asyncio.sleep(0)
        assert seen == ["1 begins", "2 begins", "2 ends", "3 begins", "3 ends"]
        assert client.transport.other_end.recv(100) == b"".join(pack(">i", len(a)) + a for a in (b"one", b"2", b"3"))

    asyncio.run(test())


def test_large_requests_that_wait_for_each_others_memory_are_all_served(serve: Callable[[Handle], None]) -> None:
    served: list[int] = []

    def handle(body: bytes) -> Any:
        served.append(len(body))
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        host = FakeHost(limit_bytes=MIB)
        clients = [Client(host, max_frame_bytes=MIB) for _ in range(4)]
        for client in clients:
            client.send(b"x" * 700 * KIB)
        while sum(client.push(most=32 * KIB) for client in clients):
            pass
        assert served == [700 * KIB] * 4
        assert host.budget.used_bytes == 0

    asyncio.run(test())


def test_one_that_goes_away_while_it_waits_for_memory_leaves_the_others_going(serve: Callable[[Handle], None]) -> None:
    served: list[int] = []

    def handle(body: bytes) -> Any:
        served.append(len(body))
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        host = FakeHost(limit_bytes=MIB)
        clients = [Client(host, max_frame_bytes=MIB) for _ in range(4)]
        for client in clients:
            client.send(b"x" * 700 * KIB)
        for client in clients:
            while client.push(most=300 * KIB):
                pass
            client.connection.connection_lost(None)
        assert host.budget.used_bytes == 0
        last = Client(host, max_frame_bytes=MIB)
        last.send(b"x" * 700 * KIB)
        while last.push():
            pass
        assert served[-1] == 700 * KIB

    asyncio.run(test())


def test_a_request_that_waits_keeps_its_memory_also_when_its_client_goes_away(serve: Callable[[Handle], None]) -> None:
    """Else one that sends large requests and reconnects would hold more than the budget."""
    waits = asyncio.Event()

    async def wait() -> Any:
        await waits.wait()
        return Raw((b"done",))

    async def test() -> None:
        serve(lambda body: wait())
        host = FakeHost(limit_bytes=MIB)
        client = Client(host, max_frame_bytes=MIB)
        client.send(b"x" * 700 * KIB)
        while client.push():
            pass
        client.connection.connection_lost(None)
        await asyncio.sleep(0)
        assert host.budget.used_bytes >= 700 * KIB
        waits.set()
        await until_async(lambda: host.budget.used_bytes == 0)

    asyncio.run(test())


def test_answers_that_will_be_large_are_not_promised_without_end(serve: Callable[[Handle], None]) -> None:
    """A client that asks for much at once, and does not take it, costs as much as a few answers."""
    promised: list[Deferred[Any]] = []

    def handle(body: bytes) -> Any:
        promised.append(Deferred(size_bytes=50 * MIB))
        return promised[-1]

    async def test() -> None:
        serve(handle)
        client = Client(FakeHost())
        client.send(*[b"fetch"] * 60)
        client.push()
        assert 1 <= len(promised) <= 4
        assert not client.transport.is_reading
        before = len(promised)
        promised[0].resolve(Raw((b"much",)))
        assert len(promised) == before + 1
        for answer in promised:
            answer.resolve(Raw((b"much",)))
        assert len(promised) == 60
        assert client.transport.is_reading

    asyncio.run(test())


def test_a_client_that_takes_no_answers_is_not_kept_for_ever(serve: Callable[[Handle], None]) -> None:
    """Not even by the rest of an answer, which a transport that is closed would still send."""

    async def test() -> None:
        serve(lambda body: Raw((b"x" * 10 * MIB,)))
        host = FakeHost()
        client = Client(host)
        client.send(*[b"fetch"] * 3)
        client.push()
        for host.time_ms in (1000.0, 20_000.0, 40_000.0):
            await client.take(100 * KIB)
            client.connection.look_after(idle_ms=30_000, stall_ms=5000)
            assert not client.transport.is_closing(), "it takes its time, yet it takes something"
        host.time_ms = 75_000.0
        client.connection.look_after(idle_ms=30_000, stall_ms=5000)
        assert not client.transport.is_reading
        assert not client.transport.is_aborted, "it may yet take what is left"
        host.time_ms = 81_000.0
        client.connection.look_after(idle_ms=30_000, stall_ms=5000)
        assert client.transport.is_aborted

    asyncio.run(test())


def test_after_a_malformed_request_nothing_is_read_or_handled_any_more(serve: Callable[[Handle], None]) -> None:
    """Not even while what was answered before is still on its way."""
    handled: list[bytes] = []

    def handle(body: bytes) -> Any:
        handled.append(body)
        if body == b"bad":
            raise ProtocolError("played")
        return Raw((b"x" * 10 * MIB,))

    async def test() -> None:
        serve(handle)
        client = Client(FakeHost())
        client.send(b"good")
        client.push()
        client.connection.buffer_updated(client.put(b"\xff\xff\xff\xff"))
        assert not client.transport.is_reading
        await client.take(10 * MIB + 4)
        await asyncio.wait_for(client.transport.closed.wait(), 60)
        assert handled == [b"good"]

    asyncio.run(test())


def test_a_client_that_owes_the_rest_of_a_request_is_closed_sooner_than_an_idle_one() -> None:
    host = FakeHost()
    idle, stalled = Client(host), Client(host)
    stalled.send(b"x" * 1000)
    stalled.push(most=100)
    host.time_ms = 6000.0
    for client in (idle, stalled):
        client.connection.look_after(idle_ms=30_000, stall_ms=5000)
    assert stalled.transport.is_closed
    assert not idle.transport.is_closed
    host.time_ms = 31_000.0
    idle.connection.look_after(idle_ms=30_000, stall_ms=5000)
    assert idle.transport.is_closed


def test_a_request_that_turns_out_malformed_later_is_no_failure_of_the_broker(
    serve: Callable[[Handle], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a Produce without an answer (acks=0) whose batch is refused after a check."""

    async def late() -> Any:
        await asyncio.sleep(0)
        raise ProtocolError("played")

    async def test() -> None:
        serve(lambda body: late())
        client = Client(FakeHost())
        client.send(b"bad")
        client.push()
        await asyncio.wait_for(client.transport.closed.wait(), 60)
        assert not client.transport.is_aborted
        assert not caplog.records

    asyncio.run(test())


@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_that_cannot_be_written_ends_the_connection(serve: Callable[[Handle], None], is_late: bool) -> None:
    """Rather than leave every later one waiting behind it."""

    async def late() -> Any:
        return "no answer"

    async def test() -> None:
        serve(lambda body: late() if is_late else "no answer")
        client = Client(FakeHost())
        client.send(b"x")
        client.push()
        await asyncio.sleep(0)
        assert client.transport.is_aborted

    asyncio.run(test())


def test_a_large_request_of_a_version_that_is_refused_gives_its_memory_back() -> None:
    async def test() -> None:
        host = FakeHost()
        client = Client(host)
        records = bytes(700 * KIB)
        body = pack(">hi", 1, 1000) + pack(">i", 1) + pack(">h", 1) + b"t" + pack(">iii", 1, 0, len(records)) + records
        client.send_raw(pack(">hhih", 0, 2, 7, -1) + body)
        while client.push():
            pass
        await asyncio.sleep(0)
        assert len(client.transport.other_end.recv(1000)) > 0
        assert host.budget.used_bytes == 0

    asyncio.run(test())
