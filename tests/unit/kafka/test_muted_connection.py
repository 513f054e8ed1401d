"""A connection whose client has exceeded a quota: what is answered, what waits, and for how long."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.kafka import connection as module
from headrace.kafka.authentication import Authentication
from headrace.kafka.dispatch import Context, Raw, Route
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.model.quotas import QuotaKind
from headrace.protocol.frames import Frame
from headrace.runtime.clock import SystemClock
from headrace.runtime.deferred import Deferred
from headrace.security.security import Security
from tests.waiting import until_async

from .test_connection import Client, FakeHost

Handle = Callable[[Context, bytes], Any]
RATE = 1000


class QuotaHost(FakeHost):
    """A server with a quota for everyone, and the clock of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        clock = SystemClock()
        self.now_ms = clock.monotonic_ms
        self.services = SimpleNamespace(clock=clock, security=Security(), broker_listener="brokers")
        self.quotas.update({(("user", None),): {QuotaKind.PRODUCE: RATE}}, 2**31 - 1, {}, 0)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handle], None]:
    def set_handler(handle: Handle) -> None:
        def read(frame: Frame, _: Any) -> bytes:
            return bytes(frame[10:])

        monkeypatch.setattr(module, "route", lambda key, version: Route(handle, read, False))

    return set_handler


def append(ctx: Context, body: bytes, seen: list[bytes]) -> None:
    """Count a request as Produce does; its size is the frame's."""
    seen.append(body[:1])
    if ctx.metered is not None:
        ctx.metered.produced(has_answer=True)


def test_later_requests_wait_and_are_handled_in_their_order(serve: Callable[[Handle], None]) -> None:
    seen: list[bytes] = []

    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, seen)
        return Raw((body[:1],))

    async def test() -> None:
        serve(handle)
        client = Client(QuotaHost())
        loop = asyncio.get_running_loop()
        began = loop.time()
        client.send(b"a" * (RATE * 10 + 200), b"b", b"c")
        client.push()
        assert seen == [b"a"]
        assert not client.transport.is_reading
        await client.take(5)  # the answer is not delayed
        assert seen == [b"a"]
        await until_async(lambda: len(seen) == 3)
        assert seen == [b"a", b"b", b"c"]
        assert loop.time() - began >= 0.2
        await until_async(lambda: client.transport.is_reading)

    asyncio.run(test())


def test_an_append_mutes_before_its_answer_is_ready(serve: Callable[[Handle], None]) -> None:
    """Else a client that pipelines would append much more before the first answer."""
    seen: list[bytes] = []
    answers: list[Deferred[Any]] = []

    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, seen)
        answers.append(Deferred())
        return answers[-1]

    async def test() -> None:
        serve(handle)
        client = Client(QuotaHost())
        client.send(*[b"a" * RATE * 6] * 5)
        client.push()
        assert len(seen) == 2
        for answer in answers:
            answer.resolve(Raw((b"done",)))
        assert len(seen) == 2
        client.connection.connection_lost(None)

    asyncio.run(test())


def test_a_muted_connection_drains_at_once(serve: Callable[[Handle], None]) -> None:
    seen: list[bytes] = []

    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, seen)
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        client = Client(QuotaHost())
        client.send(b"a" * RATE * 1000)
        while client.push():
            pass
        assert seen == [b"a"]
        await asyncio.sleep(0)
        client.connection.drain()
        await until_async(lambda: not client.connection.has_unanswered)
        client.connection.close("was still open when the broker stopped")
        assert client.transport.is_closing()
        client.connection.connection_lost(None)

    asyncio.run(test())


def muted_client(host: QuotaHost) -> Client:
    """A client that is muted for about 50 s, with the beginning of a large request."""
    client = Client(host)
    client.send(b"a" * RATE * 60, b"b" * RATE * 1000)
    while client.push():
        pass
    assert not client.transport.is_reading
    return client


def test_a_muted_connection_is_closed_when_idle_ones_are(serve: Callable[[Handle], None]) -> None:
    """A delay may be one of days: 100 MB with a quota of 1 KB each second."""
    seen: list[bytes] = []

    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, seen)
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        host = QuotaHost()
        client = muted_client(host)
        assert seen == [b"a"]
        client.connection.look_after(idle_ms=600_000, stall_ms=60_000)
        assert not client.transport.is_closing()
        host.now_ms = lambda: SystemClock().monotonic_ms() + 599_000
        client.connection.look_after(idle_ms=600_000, stall_ms=60_000)
        assert not client.transport.is_closing()
        host.now_ms = lambda: SystemClock().monotonic_ms() + 601_000
        client.connection.look_after(idle_ms=600_000, stall_ms=60_000)
        await until_async(client.transport.is_closing)
        client.connection.connection_lost(None)
        assert host.budget.used_bytes == 0

    asyncio.run(test())


def test_a_muted_connection_does_not_withhold_memory_that_others_wait_for(serve: Callable[[Handle], None]) -> None:
    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, [])
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        host = QuotaHost()
        client = muted_client(host)
        held_bytes = host.budget.used_bytes
        assert held_bytes
        host.now_ms = lambda: SystemClock().monotonic_ms() + 61_000
        client.connection.look_after(idle_ms=600_000, stall_ms=60_000)
        assert not client.transport.is_closing()
        resumed: list[bool] = []
        host.budget.take(host.budget.limit_bytes - held_bytes)
        assert not host.budget.take(1)
        host.budget.wait(lambda: resumed.append(True))
        client.connection.look_after(idle_ms=600_000, stall_ms=60_000)
        await until_async(client.transport.is_closing)
        client.connection.connection_lost(None)
        assert resumed == [True]

    asyncio.run(test())


def test_a_connection_that_waits_its_turn_is_served_then(serve: Callable[[Handle], None]) -> None:
    async def test() -> None:
        serve(lambda ctx, body: Raw((body,)))
        host = QuotaHost()
        host.admitted_after_ms = 50.0
        client = Client(host)
        assert not client.transport.is_reading
        await until_async(lambda: client.transport.is_reading)
        client.send(b"a")
        client.push()
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client.transport.other_end, 100), 60) == (
            b"\x00\x00\x00\x01a"
        )

    asyncio.run(test())


def test_a_connection_that_waits_its_turn_drains_and_is_not_served_afterwards(serve: Callable[[Handle], None]) -> None:
    async def test() -> None:
        serve(lambda ctx, body: Raw((body,)))
        host = QuotaHost()
        host.admitted_after_ms = 10.0
        client = Client(host)
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))
        client.connection.drain()
        assert not client.connection.has_unanswered
        await asyncio.sleep(0.05)
        assert not client.transport.is_reading
        assert not failures
        client.connection.close("was still open when the broker stopped")
        assert client.transport.is_closing()

    asyncio.run(test())


def test_the_time_to_authenticate_begins_when_a_connection_has_had_its_turn() -> None:
    async def test() -> None:
        host = FakeHost()
        host.admitted_after_ms = 10.0
        client = Client(host)
        peer = client.connection.peer
        assert peer is not None
        peer.authentication = Authentication(cast(Any, {}), (), max_reauth_ms=0, wall_ms=lambda: 0)
        host.time_ms = 40_000.0
        await until_async(lambda: client.transport.is_reading)
        client.connection.look_after(idle_ms=600_000, stall_ms=30_000)
        assert not client.transport.is_closing()

    asyncio.run(test())


def test_the_wait_of_a_muted_request_is_no_time_of_its_handler(serve: Callable[[Handle], None]) -> None:
    def handle(ctx: Context, body: bytes) -> Any:
        append(ctx, body, [])
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        host = QuotaHost()
        host.now_s = SystemClock().monotonic_s
        host.meter = KafkaRequestMeter()
        client = Client(host)
        client.send(b"a" * (RATE * 10 + 200), b"b")
        client.push()
        await client.take(16)
        kind = host.meter.api(0)
        await until_async(lambda: kind.count == 2)
        assert kind.local_ms < 100 < kind.queue_ms

    asyncio.run(test())


def test_a_brokers_requests_are_not_counted(serve: Callable[[Handle], None]) -> None:
    counted: list[bool] = []

    def handle(ctx: Context, body: bytes) -> Any:
        counted.append(ctx.metered is not None)
        return Raw((b"done",))

    async def test() -> None:
        serve(handle)
        client = Client(QuotaHost())
        peer = client.connection.peer
        assert peer is not None
        client.send(b"a")
        client.push()
        peer.listener = "brokers"
        peer.set_software("headrace-broker 0.2.0")
        client.send(b"a")
        client.push()
        # The second request waits in line where the first one took longer than a slice.
        await until_async(lambda: len(counted) == 2)
        assert counted == [True, False]

    asyncio.run(test())
