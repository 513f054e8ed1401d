"""What requests use is counted as Kafka counts it, also where it is only added up at first; and what time is whose."""

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest

from headrace.kafka import connection as module
from headrace.kafka.dispatch import Context, Raw, Route
from headrace.kafka.metered_request import PRODUCE, ClientMeter
from headrace.model.quotas import QuotaKind
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.runtime.clock import ManualClock
from headrace.runtime.deferred import Deferred
from headrace.security.security import Security
from tests.unit.quotas.java_rate import JavaRate
from tests.waiting import until_async

from .test_connection import Client, FakeHost, FakeTransport, request_of

UNLIMITED = 2**31 - 1


def quotas_of(**limits: float) -> BrokerQuotas:
    quotas = BrokerQuotas()
    quotas.update({(("user", None),): {QuotaKind[kind]: limit for kind, limit in limits.items()}}, UNLIMITED, {}, 0)
    return quotas


@pytest.mark.parametrize("seed", range(20))
def test_delays_are_those_of_kafkas_code_for_each_request(seed: int) -> None:
    """Exactly, for bytes: their sums are whole numbers."""
    random = Random(seed)
    clock, quotas, java = ManualClock(), quotas_of(PRODUCE=1500), JavaRate()
    clock.advance(random.randrange(10_000))
    accounts = quotas.accounts.client("alice", "app", int(clock.monotonic_ms()))

    def now_s() -> float:
        # Half a millisecond later, which is cut off: not sooner because of rounding.
        return clock.monotonic_s() + 0.0005

    meters = [ClientMeter(quotas, "app", accounts, now_s) for _ in range(2)]
    quick = 0
    for _ in range(400):
        size, now_ms = random.choice((1, 20, 300, 2000)), int(clock.monotonic_ms())
        meter = random.choice(meters)
        java.record(size, now_ms)
        assert accounts.produce is not None
        request = meter.begin(PRODUCE, size, now_s() * 1000)
        assert request is not None
        quick += accounts.produce.quick_until_ms > now_ms
        assert request.produced(has_answer=True) == java.throttle_ms(1500, now_ms)
        request.retire()
        if random.random() < 0.05:
            assert accounts.produce.used_per_s(now_ms) == pytest.approx(java.measure(now_ms))
        clock.advance(int(random.expovariate(1 / random.choice((1, 50, 1000)))))
    assert quick > 10


class TimedHost(FakeHost):
    """A server with a quota of time, and a clock that moves only in handlers."""

    def __init__(self, percent: float = 1e6) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.now_ms = self.clock.monotonic_ms
        self.services = SimpleNamespace(clock=self.clock, security=Security(), broker_listener="brokers")
        self.quotas = quotas_of(REQUEST=percent)

    def counted_ms(self) -> float:
        account = self.quotas.accounts.client("ANONYMOUS", "", 0).request
        assert account is not None
        return account.total(int(self.now_ms())) * 10


@pytest.fixture(autouse=True)
def _no_socket_stays_open() -> Iterator[None]:
    yield
    while FakeTransport.sockets:
        FakeTransport.sockets.pop().close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def set_handler(handle: Any) -> None:
        route = Route(handle, lambda frame, _: bytes(frame[10:]), False)
        monkeypatch.setattr(module, "route", lambda key, version: route)

    return set_handler


@pytest.mark.parametrize("seed", range(5))
def test_what_a_connection_counts_in_place_is_delayed_as_by_kafkas_code(
    seed: int, serve: Callable[[Any], None]
) -> None:
    async def test() -> None:
        random, host, java = Random(seed), TimedHost(), JavaRate()
        host.quotas = quotas_of(PRODUCE=1500)
        host.clock.advance(1 + random.randrange(10_000))
        delays: list[int | None] = []

        def handle(ctx: Context, body: bytes) -> Any:
            delays.append(None if ctx.metered is None else ctx.metered.produced(has_answer=True))
            return Raw((b"done",))

        serve(handle)
        client = Client(host)
        for _ in range(300):
            request, now_ms = request_of(bytes(random.choice((1, 20, 300, 2000)))), int(host.now_ms())
            java.record(len(request), now_ms)
            client.send_raw(request)
            client.push()
            await client.take(8)
            assert (delays[-1] or 0) == java.throttle_ms(1500, now_ms)
            if delays[-1]:
                # It is muted; the next one has the same accounts.
                client.connection.connection_lost(None)
                client = Client(host)
            host.clock.advance(int(random.expovariate(1 / random.choice((1, 50, 1000)))))
        assert delays.count(None) > 10
        assert any(delays)
        client.connection.connection_lost(None)

    asyncio.run(test())


def test_the_time_of_requests_that_come_together_is_counted_once(serve: Callable[[Any], None]) -> None:
    async def test() -> None:
        host = TimedHost()

        def handle(ctx: Context, body: bytes) -> Any:
            host.clock.advance(3)
            if ctx.metered is not None:
                ctx.metered.produced(has_answer=True)
            host.clock.advance(2)
            return Raw((b"done",))

        serve(handle)
        client = Client(host)
        client.send(b"a", b"b", b"c")
        client.push()
        await client.take(3 * 8)
        assert host.counted_ms() == pytest.approx(15)
        host.clock.advance(100)
        client.send(b"d")
        client.push()
        await client.take(8)
        assert host.counted_ms() == pytest.approx(20)

    asyncio.run(test())


def test_a_turn_near_the_quota_for_time_is_delayed_by_its_own_requests(serve: Callable[[Any], None]) -> None:
    """Far from it, all of a turn is counted when it ends."""

    async def test() -> None:
        host = TimedHost(percent=10)
        delays: list[int | None] = []

        def handle(ctx: Context, body: bytes) -> Any:
            host.clock.advance(10 * len(body))
            delays.append(None if ctx.metered is None else ctx.metered.produced(has_answer=True))
            return Raw((b"done",))

        serve(handle)
        client = Client(host)
        client.send(b"1")
        client.push()
        await client.take(8)
        # The first request of a client finds its account, the second one is far from the quota of ten seconds.
        client.send(b"1" * 91, b"1")
        client.push()
        await client.take(16)
        assert delays == [0, None, None]
        assert host.counted_ms() == pytest.approx(930)
        # 70 ms are left.
        host.clock.advance(1)
        client.send(b"1" * 5, b"1" * 5, b"1")
        client.push()
        await client.take(8)
        assert delays[3] == 0
        assert delays[4] is not None
        assert delays[4] > 0
        assert len(delays) == 5, "the connection is muted"
        assert host.counted_ms() == pytest.approx(1030)

    asyncio.run(test())


def test_the_time_in_which_a_request_waits_is_not_counted(serve: Callable[[Any], None]) -> None:
    async def test() -> None:
        host = TimedHost()
        waiting: list[Deferred[Any]] = []
        gate = asyncio.Event()

        async def slowly(ctx: Context) -> Any:
            host.clock.advance(1)
            await gate.wait()
            host.clock.advance(4)
            return Raw((b"late",))

        def handle(ctx: Context, body: bytes) -> Any:
            host.clock.advance(2)
            if body == b"slow":
                return slowly(ctx)
            waiting.append(Deferred())
            return waiting[-1]

        serve(handle)
        client = Client(host)
        client.send(b"later")
        client.push()
        host.clock.advance(1000)
        waiting[0].resolve(Raw((b"done",)))
        await client.take(8)
        assert host.counted_ms() == pytest.approx(2)
        client.send(b"slow")
        client.push()
        await asyncio.sleep(0)
        host.clock.advance(1000)
        gate.set()
        await client.take(8)
        await until_async(lambda: client.connection.is_idle)
        assert host.counted_ms() == pytest.approx(2 + 2 + 1 + 4)

    asyncio.run(test())


@pytest.mark.parametrize("change", [b"quotas", b"software"])
def test_a_request_that_waits_while_accounts_are_found_again_is_not_counted(
    change: bytes, serve: Callable[[Any], None]
) -> None:
    async def test() -> None:
        host = TimedHost()
        waiting: list[Deferred[Any]] = []

        def handle(ctx: Context, body: bytes) -> Any:
            host.clock.advance(2)
            if body == b"later":
                waiting.append(Deferred())
                return waiting[-1]
            if body == b"software":
                ctx.peer.set_software("client 1")
            return Raw((b"done",))

        serve(handle)
        client = Client(host)
        client.send(b"later")
        client.push()
        if change == b"quotas":
            host.quotas.accounts.renew()
        client.send(change)
        client.push()
        host.clock.advance(1000)
        waiting[0].resolve(Raw((b"done",)))
        await client.take(2 * 8)
        assert host.counted_ms() == pytest.approx(4)

    asyncio.run(test())


def test_a_closed_meter_is_freed_without_the_collector() -> None:
    """Each connection may have another one every few seconds, and old objects are hardly ever looked through."""
    quotas = quotas_of(REQUEST=10)

    def now_s() -> float:
        return 0.0

    meter, clock = ClientMeter(quotas, "app", quotas.accounts.client("alice", "app", 0), now_s), ref(now_s)
    meter.close(0.0)
    del meter, now_s
    assert clock() is None
